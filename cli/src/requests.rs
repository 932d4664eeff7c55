//! GET, SET, DEL and VDEL.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use bytes::Bytes;
use statestore_proto::hlc::{FencingToken, Hlc};
use statestore_tokio::{Error, Removal, StateStore};

use crate::args::{Del, Get, Output, Set, VALUE_BYTES_MAX, Vdel};
use crate::connection;
use crate::failure::Failure;
use crate::output::{json_line, raw};

/// What was asked for is not there, or was not done.
pub(crate) const NOT_DONE: u8 = 1;

pub(crate) async fn get(args: Get) -> Result<ExitCode, Failure> {
    let store = connection::store(&args.common)?;
    let found = answer(&store, store.get(args.key.clone()).await)?;
    store.shutdown().await;
    let json = args.common.output == Output::Json;
    let Some(found) = found else {
        if json {
            json_line("absent", &args.key, None, None)?;
        }
        return Ok(ExitCode::from(NOT_DONE));
    };
    if json {
        json_line("found", &args.key, Some(&found.value), found.version.as_ref())?;
    } else {
        raw(&found.value)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn set(args: Set) -> Result<ExitCode, Failure> {
    let value = value(args.value, args.file.as_deref())?;
    let token = token(args.fencing_token.as_deref())?;
    let store = connection::store(&args.common)?;
    let mut set = store.set(args.key.clone(), value);
    if let Some(token) = token {
        set = set.fencing_token(token);
    }
    if let Some(px) = args.px {
        set = set.expires_after(px);
    }
    if args.persist {
        set = set.persist();
    }
    let version = match (args.nx, args.nex) {
        (true, _) => set.if_absent().await,
        (_, true) => set.if_absent_or_equal().await,
        _ => set.await.map(Some),
    };
    let version = answer(&store, version)?;
    store.shutdown().await;
    let (what, came_of_it) = match &version {
        Some(version) => ("done", format!("the value was set, with the version {version}")),
        None => {
            ("not applied", "the value was not set, since the condition does not hold".to_owned())
        }
    };
    let printed = match &version {
        _ if args.common.output == Output::Json => {
            json_line(what, &args.key, None, version.as_ref())
        }
        Some(version) => raw(format!("{version}\n").as_bytes()),
        None => Ok(()),
    };
    printed.map_err(|failure| failure.after(came_of_it))?;
    Ok(if version.is_some() { ExitCode::SUCCESS } else { ExitCode::from(NOT_DONE) })
}

pub(crate) async fn del(args: Del) -> Result<ExitCode, Failure> {
    let token = token(args.fencing_token.as_deref())?;
    let store = connection::store(&args.common)?;
    let mut del = store.del(args.key.clone());
    if let Some(token) = token {
        del = del.fencing_token(token);
    }
    let removed = answer(&store, del.await)?;
    store.shutdown().await;
    let removal = if removed { Removal::Removed } else { Removal::Absent };
    told(removal, &args.key, args.common.output)
}

pub(crate) async fn vdel(args: Vdel) -> Result<ExitCode, Failure> {
    let value = value(args.value, args.file.as_deref())?;
    let token = token(args.fencing_token.as_deref())?;
    let store = connection::store(&args.common)?;
    let mut vdel = store.vdel(args.key.clone(), value);
    if let Some(token) = token {
        vdel = vdel.fencing_token(token);
    }
    let removal = answer(&store, vdel.await)?;
    store.shutdown().await;
    told(removal, &args.key, args.common.output)
}

fn told(removal: Removal, key: &str, output: Output) -> Result<ExitCode, Failure> {
    if output == Output::Json {
        let (what, came_of_it) = match removal {
            Removal::Removed => ("removed", "the key was deleted"),
            Removal::Absent => ("absent", "the key has no value"),
            Removal::Different => ("not applied", "the key has another value and was not deleted"),
        };
        json_line(what, key, None, None).map_err(|failure| failure.after(came_of_it))?;
    }
    Ok(if removal == Removal::Removed { ExitCode::SUCCESS } else { ExitCode::from(NOT_DONE) })
}

fn answer<T>(store: &StateStore, answer: Result<T, Error>) -> Result<T, Failure> {
    answer.map_err(|error| Failure::request(error, store))
}

fn value(argument: Option<String>, file: Option<&Path>) -> Result<Bytes, Failure> {
    let value = match file {
        None => argument.unwrap_or_default().into_bytes(),
        Some(path) => beginning(path)
            .map_err(|error| Failure::bad_input(format_args!("{}: {error}", path.display())))?,
    };
    if value.len() as u64 > VALUE_BYTES_MAX.into() {
        return Err(Failure::bad_input(format_args!(
            "the value is too large: a store takes {VALUE_BYTES_MAX} bytes at most; keep it elsewhere, and store where \
             that is"
        )));
    }
    Ok(value.into())
}

/// As much of a file as a value can have, and a byte more: it may have no end.
fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path)?)
    };
    let mut value = Vec::new();
    source.take(u64::from(VALUE_BYTES_MAX) + 1).read_to_end(&mut value)?;
    Ok(value)
}

fn token(text: Option<&str>) -> Result<Option<FencingToken>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let hlc: Hlc = text.parse().map_err(|error| {
        Failure::bad_input(format_args!(
            "--fencing-token {text}: {error}; it is the version that a SET printed"
        ))
    })?;
    Ok(Some(FencingToken::new(hlc)))
}
