//! GET, SET, DEL and VDEL.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use bytes::Bytes;
use rustix::fs::{fstat, stat};
use statestore_proto::hlc::{FencingToken, Hlc};
use statestore_tokio::{Error, Refusal, Removal, ServiceError};

use crate::args::{Del, Get, Output, Set, VALUE_BYTES_MAX, Vdel};
use crate::connection;
use crate::escape::printable;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{json_line, raw, terminal_note};

pub(crate) async fn get(args: Get) -> Result<ExitCode, Failure> {
    let key = args.key.bytes()?;
    let store = connection::store(&args.common)?;
    let found = response(store.get(&key).await)?;
    store.shutdown().await;
    let json = args.common.format.output == Output::Json;
    let Some(found) = found else {
        if json {
            json_line("absent", &key, None, None)?;
        } else {
            terminal_note("absent");
        }
        return Ok(Exit::Negative.into());
    };
    if json {
        json_line("found", &key, Some(&found.value), found.version.as_ref())?;
    } else {
        match io::stdout().is_terminal() {
            true => raw(for_terminal(&found.value).as_bytes())?,
            false => raw(&found.value)?,
        }
    }
    Ok(Exit::Success.into())
}

pub(crate) async fn set(args: Set) -> Result<ExitCode, Failure> {
    let (key, value) = (args.key.bytes()?, value(args.value, args.file.as_deref())?);
    let token = token(args.fencing_token.as_deref())?;
    let store = connection::store(&args.common)?;
    let mut set = store.set(&key, value);
    if let Some(token) = token {
        set = set.fencing_token(token);
    }
    if let Some(ttl) = args.ttl {
        set = set.expires_after(ttl);
    }
    if args.persist {
        set = set.persist();
    }
    let version = match (args.nx, args.nex) {
        (true, _) => set.if_absent().await,
        (_, true) => set.if_absent_or_equal().await,
        _ => set.await.map(Some),
    };
    let version = response(version)?;
    store.shutdown().await;
    let (result, outcome) = match &version {
        Some(version) => ("done", format!("the value was set, with version {version}")),
        None => {
            ("not applied", "the value was not set, since the condition does not hold".to_owned())
        }
    };
    let printed = match &version {
        _ if args.common.format.output == Output::Json => {
            json_line(result, &key, None, version.as_ref())
        }
        Some(version) => raw(format!("{version}\n").as_bytes()),
        None => {
            terminal_note(if args.nx {
                "not applied: the key exists"
            } else {
                "not applied: the key has another value"
            });
            Ok(())
        }
    };
    printed.map_err(|failure| failure.after(outcome))?;
    Ok(Exit::success_if(version.is_some()).into())
}

pub(crate) async fn del(args: Del) -> Result<ExitCode, Failure> {
    let (key, token) = (args.key.bytes()?, token(args.fencing_token.as_deref())?);
    let store = connection::store(&args.common)?;
    let mut del = store.del(&key);
    if let Some(token) = token {
        del = del.fencing_token(token);
    }
    let is_removed = response(del.await)?;
    store.shutdown().await;
    let removal = if is_removed { Removal::Removed } else { Removal::NothingRemoved };
    print_removal(removal, &key, args.common.format.output)
}

pub(crate) async fn vdel(args: Vdel) -> Result<ExitCode, Failure> {
    let (key, value) = (args.key.bytes()?, value(args.value, args.file.as_deref())?);
    let token = token(args.fencing_token.as_deref())?;
    let store = connection::store(&args.common)?;
    let mut vdel = store.vdel(&key, value);
    if let Some(token) = token {
        vdel = vdel.fencing_token(token);
    }
    let removal = response(vdel.await)?;
    store.shutdown().await;
    print_removal(removal, &key, args.common.format.output)
}

fn print_removal(removal: Removal, key: &[u8], output: Output) -> Result<ExitCode, Failure> {
    if output == Output::Json {
        let (result, outcome) = match removal {
            Removal::Removed => ("removed", "the key was deleted"),
            Removal::NothingRemoved => ("absent", "the key is absent"),
            Removal::NotApplied => ("not applied", "the key has another value and was not deleted"),
        };
        json_line(result, key, None, None).map_err(|failure| failure.after(outcome))?;
    } else {
        match removal {
            Removal::Removed => {}
            Removal::NothingRemoved => terminal_note("absent"),
            Removal::NotApplied => terminal_note("not applied: the key has another value"),
        }
    }
    Ok(Exit::success_if(removal == Removal::Removed).into())
}

fn response<T>(result: Result<T, Error>) -> Result<T, Failure> {
    result.map_err(|error| {
        let advice = match &error {
            Error::Refused { error: ServiceError::Known(refusal), .. } => fencing_advice(*refusal),
            _ => "",
        };
        Failure::request(error).map(|text| format!("{text}{advice}"))
    })
}

/// Returns what to do about a write that was refused because of a fencing token.
const fn fencing_advice(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::FencingTokenRequired => {
            "; the key was written under a lock: give the version of that lock with --fencing-token"
        }
        Refusal::FencingTokenLower => {
            "; a newer holder of the lock has written the key: acquire the lock again"
        }
        _ => "",
    }
}

/// A value as lines for a terminal.
fn for_terminal(value: &[u8]) -> String {
    let text = match std::str::from_utf8(value) {
        Ok(text) => text.split('\t').map(printable).collect::<Vec<_>>().join("\t"),
        Err(_) => value.escape_ascii().to_string(),
    };
    let end = if text.ends_with('\n') { "" } else { "\n" };
    text + end
}

fn value(argument: Option<String>, file: Option<&Path>) -> Result<Bytes, Failure> {
    if argument.as_deref() == Some("-") {
        return Err(Failure::bad_input(
            "the value is a hyphen: use --file - to read standard input, as in `printf %s - | \
             statestore set KEY --file -` for a hyphen",
        ));
    }
    let value = match file {
        None => argument.unwrap_or_default().into_bytes(),
        Some(path) => read_value(path)
            .map_err(|error| Failure::bad_input(format_args!("{}: {error}", path.display())))?,
    };
    if value.len() as u64 > VALUE_BYTES_MAX.into() {
        return Err(Failure::bad_input(format_args!(
            "the value is too large: the limit is {VALUE_BYTES_MAX} bytes; save it elsewhere, and \
             store its location"
        )));
    }
    Ok(value.into())
}

/// Reads at most one byte more than the largest value, since the file may be endless.
fn read_value(path: &Path) -> io::Result<Vec<u8>> {
    let source: Box<dyn Read> = if path == Path::new("-") {
        // The runtime of Rust opens it in place of a closed standard input.
        if is_null(io::stdin().as_fd()) {
            return Err(io::Error::other(
                "standard input is closed or /dev/null; for an empty value, use --file /dev/null",
            ));
        }
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path)?)
    };
    let mut value = Vec::new();
    source.take(u64::from(VALUE_BYTES_MAX) + 1).read_to_end(&mut value)?;
    Ok(value)
}

fn is_null(file: impl AsFd) -> bool {
    let (Ok(file), Ok(null)) = (fstat(file), stat("/dev/null")) else { return false };
    (file.st_dev, file.st_ino) == (null.st_dev, null.st_ino)
}

fn token(text: Option<&str>) -> Result<Option<FencingToken>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let hlc: Hlc = text.parse().map_err(|error| {
        Failure::bad_input(format_args!(
            "--fencing-token {text}: {error}; the token is a version that `statestore set` printed"
        ))
    })?;
    Ok(Some(FencingToken::new(hlc)))
}
