//! A store, in a broker of its own or beside another one.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use statestore_embedded::SharedPolicy;
#[cfg(feature = "etcd")]
use statestore_etcd::MAX_VALUE_BYTES;
use statestore_proto::glob::Pattern;
use statestore_proto::hlc::NodeId;
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{self, WordCase};
use statestore_proto::store::{DialectPolicy, Durability, KeySelector, StoreConfig};
use statestore_tokio::{ServiceBuilder, StoreService};

use crate::args::{Dialect, Durable, Kept, Serve};
use crate::data::Announced;
use crate::failure::Failure;
use crate::host::{Host, Hosted};
use crate::policy::PolicyFile;
use crate::signals::Signals;
#[cfg(feature = "etcd")]
use crate::standby;
use crate::supervisor::Supervisor;

pub(crate) async fn run(args: Serve) -> Result<ExitCode, Failure> {
    // First of all: a signal before its handler is there would end this process in its own way.
    let stop = Signals::new()?.with_hangup()?;
    let supervisor = Arc::new(Supervisor::from_env());
    supervisor.status("starting");
    let watched = Arc::clone(&supervisor);
    tokio::spawn(async move { watched.lives().await });
    let policy =
        args.policy.as_deref().map(|path| PolicyFile::read(path, args.listen.principals()));
    let policy = policy.transpose()?;
    if policy.is_some() && !args.broker.is_empty() && !args.trust_claimed_ids {
        return Err(Failure::bad_input(
            "beside a broker requesters are who they claim to be, so a policy would protect nothing; if the broker's \
             access rules keep clients from speaking in another's name, give --trust-claimed-ids",
        ));
    }
    let shared = policy.as_ref().map(|policy| policy.shared().clone());
    #[cfg(feature = "etcd")]
    if args.etcd.is_wanted() {
        let host = Host::open(&args, policy, supervisor).await?;
        let limits = StoreLimits::default();
        let value_bytes_max = MAX_VALUE_BYTES - limits.key_bytes_max;
        let limits = StoreLimits { value_bytes_max, ..limits };
        let config = || config(&args, shared.as_ref(), limits);
        let ended = standby::run(&args, &host, config, stop).await;
        host.close().await;
        return ended;
    }
    #[cfg(not(feature = "etcd"))]
    args.etcd.check()?;
    let (service, keeps) = kept(
        StoreService::builder(),
        config(&args, shared.as_ref(), StoreLimits::default())?,
        &args,
        &supervisor,
    )?;
    let host = Host::open(&args, policy, supervisor).await?;
    let hosted = host.spawn(service);
    host.say_if_slow(&hosted.service);
    let ended = serve(hosted, stop, keeps, &host).await;
    host.close().await;
    ended
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
    let what = match kept.durable.unwrap_or_default() {
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
    supervisor: &Arc<Supervisor>,
) -> Result<(ServiceBuilder, Option<Keeps>), Failure> {
    let mut keeping = None;
    let Kept { data, durable, .. } = &args.kept;
    if let Some(directory) = data {
        let journal =
            Announced::open(directory, supervisor).map_err(|error| Failure::directory(&error))?;
        keeping = Some(Keeps { text: keeps(&args.kept, directory), is_read: journal.is_read() });
        service = service.journal(journal);
        config = config
            .durability(match durable.unwrap_or_default() {
                Durable::Requested => Durability::Requested,
                Durable::All => Durability::All,
            })
            // The sessions of another broker outlive this store, and their clients do not register again.
            .durable_watches(!args.broker.is_empty());
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

fn config(
    args: &Serve,
    policy: Option<&SharedPolicy>,
    limits: StoreLimits,
) -> Result<StoreConfig, Failure> {
    let node_id = NodeId::new(&args.node_id)
        .map_err(|error| Failure::bad_input(format_args!("--node-id {}: {error}", args.node_id)))?;
    let config = StoreConfig::new(fastrand::u64(..))
        .node_id(node_id)
        .limits(StoreLimits {
            keys_max: args.max_keys,
            bytes_max: args.max_bytes,
            client_percent: args.client_share,
            ..limits
        })
        .clock_drift_max(args.max_clock_drift)
        .explain(args.explain)
        .dialect(match args.dialect {
            Dialect::Auto => DialectPolicy::Auto,
            Dialect::Page => DialectPolicy::Pinned(message::Dialect::Page),
            Dialect::Deployed => DialectPolicy::Pinned(message::Dialect::Deployed),
        })
        .word_case(if args.strict_verbs { WordCase::Upper } else { WordCase::Any });
    let config = match &args.kept.durable_keys[..] {
        [] => config,
        patterns => config.durable_keys(selector(patterns)?),
    };
    Ok(match policy {
        None => config,
        Some(policy) if !args.broker.is_empty() => config.authorizer(policy.authorizer_of_claims()),
        Some(policy) => config.authorizer(policy.authorizer()),
    })
}

/// Prints the line, and what survives with the number of keys, when requests reach the store, and returns when it is told to stop or cannot go on.
async fn serve(
    mut hosted: Hosted,
    mut stop: Signals,
    keeps: Option<Keeps>,
    host: &Host<'_>,
) -> Result<ExitCode, Failure> {
    let service = &mut hosted.service;
    let is_stopped = host.told_to_stop(&mut stop);
    tokio::pin!(is_stopped);
    tokio::select! {
        ready = service.connected() => ready.map_err(|closed| {
            let is_read = keeps.as_ref().is_some_and(|keeps| keeps.is_read.load(Ordering::Acquire));
            // What cannot be written, before it is ready as after.
            if closed.is_journal && is_read { Failure::ended(&closed) } else { Failure::closed(&closed) }
        })?,
        () = &mut is_stopped => {
            hosted.service.shutdown().await;
            return Ok(ExitCode::SUCCESS);
        }
    }
    host.say_ready(&hosted, keeps.as_ref().map(|keeps| &*keeps.text));
    tokio::select! {
        closed = hosted.service.stopped() => Err(Failure::ended(&closed)),
        () = is_stopped => {
            hosted.service.shutdown().await;
            Ok(ExitCode::SUCCESS)
        }
    }
}
