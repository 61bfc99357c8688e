//! `amphi info`: what an image is: the device, the file system on it, and who has it mounted.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};

use crate::control::Request;
use crate::device::{self, Speed};
use crate::filesystem;
use crate::shared;
use crate::target::Target;

/// Shows what an image is.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  amphi info ssd.img\n  amphi info /mnt --json")]
pub struct Options {
    /// An image, or the directory where one is mounted.
    path: PathBuf,
    /// One JSON object: image, mounted_at, pid, metrics, doors, processor, device, filesystem.
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let target = Target::find(&options.path)?;
    let mut info = match target.ask(&Request::Info)? {
        Some(mut daemon) => daemon.answer()?,
        None => {
            let device = device::open(&target.image, Speed::Free)?;
            let filesystem = filesystem::describe(&device);
            json!({
                "pid": null,
                "metrics": null,
                "doors": null,
                "device": device.info(),
                "filesystem": filesystem,
            })
        }
    };
    info["processor"] = shared::about_processor();
    info["image"] = json!(target.image.display().to_string());
    info["mounted_at"] = json!(target.mounted_at.as_ref().map(|directory| directory.display().to_string()));
    if options.json {
        println!("{info}");
    } else {
        print_tree(&info, 0);
    }
    Ok(())
}

/// Nested objects as indented `name: value` lines.
fn print_tree(value: &Value, depth: usize) {
    let Some(fields) = value.as_object() else { return };
    for (name, value) in fields {
        let name = name.replace('_', " ");
        let indent = "  ".repeat(depth);
        match value {
            Value::Object(_) => {
                println!("{indent}{name}:");
                print_tree(value, depth + 1);
            }
            Value::Null => println!("{indent}{name}: none"),
            Value::String(text) => println!("{indent}{name}: {text}"),
            other if name.ends_with(" bytes") && other.is_u64() => {
                println!(
                    "{indent}{}: {}",
                    name.trim_end_matches(" bytes"),
                    amphi_volume::size::shown(other.as_u64().unwrap_or(0))
                );
            }
            other => println!("{indent}{name}: {other}"),
        }
    }
}
