//! The file of a capture.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use statestore_capture::end_frame;
use statestore_tokio::service::{Capture, CaptureReader, ServiceBuilder, capture};
use tracing::warn;

use crate::config::CaptureSettings;

/// Maximum number of bytes that wait to be written. When they are used up, the capture ends.
const QUEUED_BYTES_MAX: u32 = 32 << 20;

/// A capture that is written by a separate thread.
pub(crate) struct CaptureFile {
    capture: Capture,
    writer: JoinHandle<()>,
    path: PathBuf,
    is_redacted: bool,
}

impl CaptureFile {
    /// Creates the file, if one is configured.
    pub(crate) fn create(settings: &CaptureSettings) -> Option<io::Result<Self>> {
        let path = settings.capture.clone()?;
        Some(Self::start(path, settings.capture_redacted, settings.capture_max_bytes))
    }

    fn start(path: PathBuf, is_redacted: bool, bytes_max: u64) -> io::Result<Self> {
        let file = create_private_file(&path)?;
        let (sender, reader) = capture(QUEUED_BYTES_MAX);
        let capture = if is_redacted { sender.redacted() } else { sender };
        let to = path.clone();
        let writer = std::thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || write(file, &to, reader, bytes_max))?;
        Ok(Self { capture, writer, path, is_redacted })
    }

    /// Captures a store.
    pub(crate) fn attach(&self, service: ServiceBuilder) -> ServiceBuilder {
        service.capture(self.capture.clone())
    }

    /// Path of the file, and whether values are replaced.
    pub(crate) fn description(&self) -> (PathBuf, bool) {
        (self.path.clone(), self.is_redacted)
    }

    /// Waits until everything is written. No captured store may be running.
    pub(crate) fn close(self) {
        drop(self.capture);
        // The writer logs its errors.
        let _ = self.writer.join();
    }
}

/// Creates a file that only its owner can read. Fails if the file exists.
fn create_private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn write(mut file: File, path: &Path, mut parts: CaptureReader, bytes_max: u64) {
    let mut written = 0_u64;
    while let Some(part) = parts.blocking_recv() {
        written = written.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
        if written > bytes_max {
            let why = "the file has reached its maximum size";
            warn!(path = %path.display(), bytes_max, "capture ended: {why}");
            let _ = file.write_all(&end_frame(why));
            return;
        }
        if let Err(error) = file.write_all(&part) {
            warn!(path = %path.display(), %error, "capture ended: the file cannot be written");
            return;
        }
    }
}
