//! Reads files of limited size.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Reads a file of at most `limit` bytes. A larger one is an error, and only `limit` bytes and one
/// more are read of it.
pub(super) fn read(file: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let len = File::open(file)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(len).is_ok_and(|len| len <= limit) {
        return Ok(bytes);
    }
    let error = format!("the file has more than {limit} bytes");
    Err(io::Error::new(io::ErrorKind::FileTooLarge, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_beyond_the_limit_is_an_error() {
        let file = std::env::temp_dir().join(format!("statestore-read-{}", std::process::id()));
        std::fs::write(&file, [7; 10]).expect("a file");
        assert_eq!(read(&file, 10).expect("a file of 10 bytes"), [7; 10]);
        let error = read(&file, 9).expect_err("a limit of 9 bytes");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        std::fs::remove_file(&file).expect("the file exists");
        #[cfg(unix)]
        assert!(read(Path::new("/dev/zero"), 10).is_err(), "a file without an end");
    }
}
