//! GET, SET, DEL and VDEL.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use bytes::Bytes;
use statestore_proto::hlc::{FencingToken, Hlc};
use statestore_tokio::{Error, Removal, StateStore};

use crate::args::{Del, Get, Output, Set, Vdel};
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
    let what = if version.is_some() { "done" } else { "not applied" };
    if args.common.output == Output::Json {
        json_line(what, &args.key, None, version.as_ref())?;
    } else if let Some(version) = &version {
        raw(format!("{version}\n").as_bytes())?;
    }
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
        let what = match removal {
            Removal::Removed => "removed",
            Removal::Absent => "absent",
            Removal::Different => "not applied",
        };
        json_line(what, key, None, None)?;
    }
    Ok(if removal == Removal::Removed { ExitCode::SUCCESS } else { ExitCode::from(NOT_DONE) })
}

fn answer<T>(store: &StateStore, answer: Result<T, Error>) -> Result<T, Failure> {
    answer.map_err(|error| Failure::request(error, store.status().current().reason()))
}

fn value(argument: Option<String>, file: Option<&Path>) -> Result<Bytes, Failure> {
    let Some(path) = file else { return Ok(argument.unwrap_or_default().into()) };
    let read = if path == Path::new("-") {
        let mut value = Vec::new();
        std::io::stdin().lock().read_to_end(&mut value).map(|_| value)
    } else {
        std::fs::read(path)
    };
    read.map(Bytes::from)
        .map_err(|error| Failure::bad_input(format_args!("{}: {error}", path.display())))
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
