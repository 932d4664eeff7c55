//! Files that other users of this machine can read or change.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Bits of a file mode that let other users read, except the group.
const OTHERS_READ: u32 = 0o004;

/// Bits of a file mode that let other users write.
const OTHERS_WRITE: u32 = 0o022;

/// Returns a warning if other users can read a file with a secret, or change it.
pub(crate) fn warn_about_secret(path: &Path) -> Option<String> {
    let mode = mode(path)?;
    match mode & OTHERS_READ {
        0 => warn_about_writers(path),
        _ => Some(format!("every user of this machine can read it (mode {mode:04o}): chmod o= it")),
    }
}

/// Returns a warning if other users can change a file or directory.
pub(crate) fn warn_about_writers(path: &Path) -> Option<String> {
    let mode = mode(path)?;
    let warning = || format!("other users can change it (mode {mode:04o}): chmod go-w it");
    (mode & OTHERS_WRITE != 0).then(warning)
}

/// `None` if the file is missing, which other code reports.
fn mode(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|meta| meta.permissions().mode() & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_modes_that_let_others_read_secrets_or_write_are_reported() {
        let name = format!("statestore-permissions-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, "secret").unwrap();
        let warnings = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            [warn_about_secret(&path), warn_about_writers(&path)].map(|warning| warning.is_some())
        };
        for (mode, expected) in [
            (0o600, [false, false]),
            (0o640, [false, false]),
            (0o644, [true, false]),
            (0o660, [true, true]),
            (0o602, [true, true]),
        ] {
            assert_eq!(warnings(mode), expected, "{mode:o}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(warn_about_secret(&path), None);
    }
}
