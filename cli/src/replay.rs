//! `replay`: repeats the run of a captured store.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use statestore_capture::{Difference, Next, Replay, next_frame};
use statestore_tokio::service::redaction_key;

use crate::args::{self, Output};
use crate::escape::printable;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::raw;
use crate::progress::Progress;

/// Bytes of each read. A longer frame is read with its declared length, if the file contains it.
const CHUNK: u64 = 256 << 10;

pub(crate) fn run(args: &args::Replay) -> Result<ExitCode, Failure> {
    let file = File::open(&args.file).map_err(|error| path_failure(&args.file, &error))?;
    let mut copy = match &args.redact {
        Some(path) => Some(Copy { file: create(path)?, path }),
        None => None,
    };
    let mut replay =
        if copy.is_some() { Replay::redacting(redaction_key()) } else { Replay::new() };
    let size = file.metadata().map_or(0, |meta| meta.len());
    let progress = Progress::bytes("replaying", size);
    let mut input = BufReader::new(file);
    let (mut found, mut shown) = (0_u64, Vec::new());
    let mut read = Vec::new();
    let ended = loop {
        let (used, needed, played) = play(&read, &mut replay, |difference| {
            found += 1;
            if shown.len() < args.differences {
                shown.push(difference);
            }
        });
        if let Some(copy) = &mut copy {
            copy.add(&replay.take_capture())?;
        }
        progress.advance(used);
        read.drain(..used);
        if let Err(error) = played {
            break Some(format!("frame {}: {error}", replay.played().frames + 1));
        }
        let wanted = u64::try_from(needed.saturating_sub(read.len())).unwrap_or(CHUNK).max(CHUNK);
        match (&mut input).take(wanted).read_to_end(&mut read) {
            Ok(0) => break None,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(path_failure(&args.file, &error)),
        }
    };
    drop(progress);
    let is_cut = ended.is_none() && !read.is_empty();
    let report = Report { args, replay: &replay, found, shown: &shown, is_cut };
    if replay.played().stores > 0 {
        report.print()?;
    }
    match ended {
        Some(why) => {
            let path = args.file.display();
            Err(Failure::bad_input(format_args!(
                "{path}: {why}; all frames before it were replayed"
            )))
        }
        None if replay.played().stores == 0 => {
            let path = args.file.display();
            Err(Failure::bad_input(format_args!(
                "{path}: the capture is empty; `statestore serve --capture FILE` writes one"
            )))
        }
        None => Ok(Exit::success_if(found == 0).into()),
    }
}

fn path_failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::path(path.display(), error)
}

/// Plays all complete frames. Returns their length and the minimum length of the next frame.
fn play(
    read: &[u8],
    replay: &mut Replay,
    mut differs: impl FnMut(Difference),
) -> (usize, usize, Result<(), String>) {
    let mut rest = read;
    loop {
        let used = read.len() - rest.len();
        match next_frame(rest) {
            Ok(Next::Frame(frame, behind)) => match replay.play(frame) {
                Ok(difference) => {
                    difference.into_iter().for_each(&mut differs);
                    rest = behind;
                }
                Err(error) => return (used, 0, Err(error.to_string())),
            },
            Ok(Next::Part(needed)) => return (used, needed, Ok(())),
            Err(error) => return (used, 0, Err(error.to_string())),
        }
    }
}

/// A redacted copy.
struct Copy<'a> {
    file: File,
    path: &'a Path,
}

impl Copy<'_> {
    fn add(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|error| path_failure(self.path, &error))
    }
}

struct Report<'a> {
    args: &'a args::Replay,
    replay: &'a Replay,
    found: u64,
    shown: &'a [Difference],
    is_cut: bool,
}

impl Report<'_> {
    fn print(&self) -> Result<(), Failure> {
        match self.args.format.output {
            Output::Text => raw(self.text().as_bytes()),
            Output::Json => raw(self.json().as_bytes()),
        }
    }

    /// Returns the reason for the end of the capture.
    fn end(&self) -> &str {
        match self.replay.ended() {
            Some(why) => why,
            None if self.is_cut => "it was cut off in the middle of a frame",
            None => "it was cut off",
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for difference in self.shown {
            let Difference { frame, after, captured, replayed } = difference;
            let replayed = replayed.as_deref().unwrap_or("nothing");
            text += &printable(&format!("frame {frame}, after {after}"));
            text += &format!("\n  captured: {}\n", printable(captured));
            text += &format!("  replayed: {}\n", printable(replayed));
        }
        let played = self.replay.played();
        let counted = |count: u64, what: &str| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        };
        let batches = match played.batches {
            1 => "1 batch".to_owned(),
            count => format!("{count} batches"),
        };
        let what = [
            counted(played.stores, "store"),
            counted(played.restored, "restored record"),
            counted(played.messages, "message"),
            counted(played.sent, "packet") + " sent",
            batches + " of records",
        ];
        text += &format!("played {}; the end: {}\n", what.join(", "), printable(self.end()));
        text += &match self.found {
            0 => "no difference\n".to_owned(),
            found => counted(found, "difference") + "\n",
        };
        text
    }

    fn json(&self) -> String {
        let played = self.replay.played();
        let differences = self.shown.iter().map(|difference| {
            json!({
                "frame": difference.frame,
                "after": difference.after,
                "captured": difference.captured,
                "replayed": difference.replayed,
            })
        });
        let report = json!({
            "stores": played.stores,
            "restored": played.restored,
            "messages": played.messages,
            "sent": played.sent,
            "batches": played.batches,
            "frames": played.frames,
            "end": self.end(),
            "is_cut": self.is_cut,
            "differences": self.found,
            "shown": differences.collect::<Vec<_>>(),
        });
        printable(&report.to_string()) + "\n"
    }
}

/// Creates a file that only its owner can read. Never replaces a file.
fn create(path: &Path) -> Result<File, Failure> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::bad_input(format_args!(
            "{} exists: remove it, or use another name",
            path.display()
        )),
        _ => Failure::path(path.display(), &error),
    })
}
