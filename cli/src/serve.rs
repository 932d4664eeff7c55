//! A store, in a broker of its own or beside another one.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use statestore_embedded::Broker;
use statestore_proto::glob::Pattern;
use statestore_proto::hlc::NodeId;
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{self, WordCase};
use statestore_proto::store::{DialectPolicy, Durability, KeySelector, StoreConfig};
use statestore_rumqttc::RumqttcLink;
use statestore_tokio::{ServiceBuilder, StoreService};

use crate::args::{Dialect, Durable, Kept, Serve};
use crate::connection;
use crate::data::Announced;
use crate::failure::Failure;
use crate::output;
use crate::own_broker::{self, Files};
use crate::policy::{PolicyFile, counted};
use crate::signals::{Asked, Signals};

pub(crate) async fn run(args: Serve) -> Result<ExitCode, Failure> {
    // First of all: a signal before its handler is there would end this process in its own way.
    let stop = Signals::new()?.with_hangup()?;
    let service = StoreService::builder();
    let mut config = config(&args)?;
    let policy =
        args.policy.as_deref().map(|path| PolicyFile::read(path, args.listen.principals()));
    let policy = policy.transpose()?;
    if let Some(policy) = &policy {
        let shared = policy.shared();
        config = config.authorizer(match args.broker.is_empty() {
            true => shared.authorizer(),
            false if args.trust_claimed_ids => shared.authorizer_of_claims(),
            false => {
                return Err(Failure::bad_input(
                    "beside a broker requesters are who they claim to be, so a policy would protect nothing; if the \
                     broker's access rules keep clients from speaking in another's name, give --trust-claimed-ids",
                ));
            }
        });
    }
    let (service, keeps) = kept(service, config, &args)?;
    if args.broker.is_empty() {
        let (broker, files, line) = own_broker::start(&args.listen, policy).await?;
        let service = service.spawn(broker.store_link());
        let ended = host(service, stop, (|| line, keeps), &files, Some(&broker)).await;
        broker.stop().await;
        return ended;
    }
    let files = Files { policy, ..Files::default() };
    let options =
        connection::options(&args.broker, &args.login, "statestore")?.presence(args.presence);
    let trust = match &files.policy {
        None => {
            "requesters are who they claim to be, so let the broker's access rules decide who may send requests"
        }
        Some(_) => "the policy trusts that requesters are who they claim to be",
    };
    let client_id = options.client_id.clone();
    let link = connection::as_account(RumqttcLink::for_store(options), &args.login)
        .fail_fast(connection::advice);
    let in_use = link.in_use();
    let service = service.spawn(link);
    tokio::spawn(connection::say_if_slow(service.status(), args.broker.clone()));
    let line = || {
        let url = connection::url_in_use(&args.broker, &in_use);
        format!("statestore: ready on {url} as client {client_id}; {trust}")
    };
    host(service, stop, (line, keeps), &files, None).await
}

/// What survives, where anything does.
struct Keeps {
    /// In the words of the line that says that the store is ready.
    text: String,
    /// Whether all that was kept before was read.
    is_read: Arc<AtomicBool>,
}

/// What survives, and where.
fn keeps(kept: &Kept, directory: &Path) -> String {
    let what = match kept.durable {
        Durable::Requested if kept.durable_keys.is_empty() => {
            "what clients ask to be kept survives"
        }
        Durable::Requested => "what clients ask to be kept survives, and the durable keys",
        Durable::All => "everything survives",
    };
    format!("; {what} in {}", directory.display())
}

/// The store with its data directory, if it has one, and what that keeps.
fn kept(
    mut service: ServiceBuilder,
    mut config: StoreConfig,
    args: &Serve,
) -> Result<(ServiceBuilder, Option<Keeps>), Failure> {
    let mut keeping = None;
    let Kept { data, durable, durable_keys } = &args.kept;
    if let Some(directory) = data {
        let journal = Announced::open(directory).map_err(|error| Failure::directory(&error))?;
        keeping = Some(Keeps { text: keeps(&args.kept, directory), is_read: journal.is_read() });
        service = service.journal(journal);
        config = config
            .durability(match durable {
                Durable::Requested => Durability::Requested,
                Durable::All => Durability::All,
            })
            // The sessions of another broker outlive this store, and their clients do not register again.
            .durable_watches(!args.broker.is_empty());
    }
    if !durable_keys.is_empty() {
        config = config.durable_keys(selector(durable_keys)?);
    }
    Ok((service.config(config).map_err(Failure::bad_input)?, keeping))
}

/// Whether one of these patterns matches a key.
fn selector(patterns: &[String]) -> Result<KeySelector, Failure> {
    for pattern in patterns {
        Pattern::new(pattern.as_bytes()).map_err(|error| {
            Failure::bad_input(format_args!("--durable-keys {pattern}: {error}"))
        })?;
    }
    let patterns = patterns.to_vec();
    Ok(Box::new(move |key| {
        let mut patterns = patterns.iter().map(String::as_bytes).map(Pattern::new);
        patterns.any(|pattern| pattern.is_ok_and(|pattern| pattern.matches(key)))
    }))
}

fn config(args: &Serve) -> Result<StoreConfig, Failure> {
    let node_id = NodeId::new(&args.node_id)
        .map_err(|error| Failure::bad_input(format_args!("--node-id {}: {error}", args.node_id)))?;
    Ok(StoreConfig::new(fastrand::u64(..))
        .node_id(node_id)
        .limits(StoreLimits {
            keys_max: args.max_keys,
            bytes_max: args.max_bytes,
            client_percent: args.client_share,
            ..StoreLimits::default()
        })
        .clock_drift_max(args.max_clock_drift)
        .dialect(match args.dialect {
            Dialect::Auto => DialectPolicy::Auto,
            Dialect::Page => DialectPolicy::Pinned(message::Dialect::Page),
            Dialect::Deployed => DialectPolicy::Pinned(message::Dialect::Deployed),
        })
        .word_case(if args.strict_verbs { WordCase::Upper } else { WordCase::Any }))
}

/// Prints the line, and what survives with the number of keys, when requests reach the store, and returns when it is told to stop or cannot go on.
async fn host(
    mut service: StoreService,
    mut stop: Signals,
    (line, keeps): (impl FnOnce() -> String, Option<Keeps>),
    files: &Files,
    broker: Option<&Broker>,
) -> Result<ExitCode, Failure> {
    let is_stopped = told_to_stop(&mut stop, files, broker);
    tokio::pin!(is_stopped);
    tokio::select! {
        ready = service.connected() => ready.map_err(|closed| {
            let is_read = keeps.as_ref().is_some_and(|keeps| keeps.is_read.load(Ordering::Acquire));
            // What cannot be written, before it is ready as after.
            if closed.is_journal && is_read { Failure::ended(&closed) } else { Failure::closed(&closed) }
        })?,
        () = &mut is_stopped => {
            service.shutdown().await;
            return Ok(ExitCode::SUCCESS);
        }
    }
    let mut line = line();
    if let Some(Keeps { text, .. }) = keeps {
        let keys = counted(service.stats().keys, "key");
        line = format!("{line}{text}; it begins with {keys}");
    }
    // Requests come from the broker: a store serves whether somebody reads this or not.
    drop(tokio::spawn(output::line(line + "\n")));
    tokio::select! {
        closed = service.stopped() => Err(Failure::ended(&closed)),
        () = is_stopped => {
            service.shutdown().await;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// SIGHUP, which others send to whatever has files to read again, never is the end.
async fn told_to_stop(stop: &mut Signals, files: &Files, broker: Option<&Broker>) {
    while stop.received().await == Asked::Hangup {
        files.reload(broker).await;
    }
}
