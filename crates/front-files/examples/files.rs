//! Appends a line to a file of a mount or of an image, durably, and shows the file. `files PLACE TEXT`

use std::error::Error;
use std::path::Path;

use amphifiles::{Files, How, ImageOptions};

/// Appends the line; the file then.
pub fn append(place: &Path, text: &str) -> Result<String, Box<dyn Error>> {
    let files = if place.is_dir() {
        Files::mounted(place)?
    } else {
        Files::image(place, &ImageOptions { free: true, ..ImageOptions::default() })?
    };
    let how = How { read: true, write: true, append: true, create: Some(0o644), ..How::default() };
    let log = files.open("/log", how)?;
    log.append(format!("{text}\n").as_bytes())?;
    log.sync()?;
    let mut data = [0; 4096];
    let read = log.read_at(&mut data, 0)?;
    drop(log);
    files.close()?;
    Ok(String::from_utf8_lossy(&data[..read]).into_owned())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let place = words.next().ok_or("a mount or an image is needed")?;
    print!("{}", append(Path::new(&place), &words.next().ok_or("a text is needed")?)?);
    Ok(())
}
