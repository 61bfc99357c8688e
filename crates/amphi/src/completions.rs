//! `amphi completions`: what a shell needs to complete the command's words.

use clap::CommandFactory;
use clap_complete::Shell;

/// Prints shell completions.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  amphi completions bash > /etc/bash_completion.d/amphi")]
pub struct Options {
    /// For which shell.
    shell: Shell,
}

pub fn run(options: &Options) {
    let mut words = Vec::new();
    clap_complete::generate(options.shell, &mut crate::Arguments::command(), "amphi", &mut words);
    print!("{}", String::from_utf8_lossy(&words));
}
