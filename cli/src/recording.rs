//! The file in which a store is recorded.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread::JoinHandle;

use statestore_proto::store::recording::end_frame;
use statestore_tokio::{Recording, RecordingReader, ServiceBuilder, recording};
use tracing::warn;

use crate::args::Record;
use crate::failure::Failure;

/// Bytes that wait to be written at most; a store whose requests are faster than the disk for so long ends its recording.
const WAITING_MAX: u32 = 32 << 20;

/// A recording that is written.
pub(crate) struct Recorder {
    recording: Recording,
    writer: JoinHandle<()>,
    line: String,
}

impl Recorder {
    /// Makes the file, if one is wanted.
    pub(crate) fn open(args: &Record) -> Result<Option<Self>, Failure> {
        let Some(path) = &args.record else { return Ok(None) };
        let file = create(path)?;
        let (sender, reader) = recording(WAITING_MAX);
        let sender = if args.record_redacted { sender.redacted() } else { sender };
        let (to, bytes_max) = (path.clone(), args.record_max_bytes);
        let writer = std::thread::Builder::new()
            .name("recording".to_owned())
            .spawn(move || write(file, &to, reader, bytes_max))
            .map_err(Failure::system)?;
        let what = if args.record_redacted { "with other values" } else { "with all values" };
        let line = format!("; all of it is recorded, {what}, in {}", path.display());
        Ok(Some(Self { recording: sender, writer, line }))
    }

    /// Has a store recorded.
    pub(crate) fn record(&self, service: ServiceBuilder) -> ServiceBuilder {
        service.record(self.recording.clone())
    }

    /// What the line says that the store is ready.
    pub(crate) fn line(&self) -> &str {
        &self.line
    }

    /// Waits until all of it is written. No store may run that is recorded.
    pub(crate) fn close(self) {
        let Self { recording, writer, .. } = self;
        drop(recording);
        // It says itself what is wrong.
        let _ = writer.join();
    }
}

/// A file that only its owner may read. One that is there is somebody else's, or the recording that is still wanted.
pub(crate) fn create(path: &Path) -> Result<File, Failure> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::bad_input(format_args!(
            "{} is there already: remove it, or name another file",
            path.display()
        )),
        _ => Failure::path(path.display(), &error),
    })
}

fn write(mut file: File, path: &Path, mut parts: RecordingReader, bytes_max: u64) {
    let mut written = 0_u64;
    while let Some(part) = parts.blocking_recv() {
        written = written.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
        if written > bytes_max {
            let why = "the file has as many bytes as it may have";
            warn!(path = %path.display(), bytes_max, "the recording ends: {why}");
            let _ = file.write_all(&end_frame(why));
            return;
        }
        if let Err(error) = file.write_all(&part) {
            warn!(path = %path.display(), %error, "the recording ends: it cannot be written");
            return;
        }
    }
}
