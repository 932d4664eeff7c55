//! A store beside a broker.

use std::io::Write;
use std::process::ExitCode;

use statestore_proto::hlc::NodeId;
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{self, WordCase};
use statestore_proto::store::{DialectPolicy, StoreConfig};
use statestore_rumqttc::RumqttcLink;
use statestore_tokio::StoreService;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Dialect, Serve};
use crate::connection;
use crate::failure::Failure;

pub(crate) async fn run(args: Serve) -> Result<ExitCode, Failure> {
    let node_id = NodeId::new(&args.node_id)
        .map_err(|error| Failure::bad_input(format_args!("--node-id {}: {error}", args.node_id)))?;
    let options = connection::options(&args.connection, "statestore")?.presence(args.presence);
    let config = StoreConfig::new(fastrand::u64(..))
        .node_id(node_id)
        .limits(StoreLimits { keys_max: args.max_keys, ..StoreLimits::default() })
        .dialect(match args.dialect {
            Dialect::Auto => DialectPolicy::Auto,
            Dialect::Page => DialectPolicy::Pinned(message::Dialect::Page),
            Dialect::Deployed => DialectPolicy::Pinned(message::Dialect::Deployed),
        })
        .word_case(if args.strict_verbs { WordCase::Upper } else { WordCase::Any });
    let client_id = options.client_id();
    let mut service = StoreService::builder().config(config).spawn(RumqttcLink::for_store(options));
    tokio::select! {
        ready = service.connected() => ready.map_err(|closed| Failure::closed(&closed))?,
        stop = interrupted() => {
            stop?;
            service.shutdown().await;
            return Ok(ExitCode::SUCCESS);
        }
    }
    // Requests come from the broker: a store serves whether somebody reads this or not.
    let _ = writeln!(
        std::io::stdout(),
        "statestore: ready on {} as client {client_id}; requesters are who they claim to be, so let the broker's \
         access rules decide who may send requests",
        args.connection.broker
    );
    tokio::select! {
        closed = service.stopped() => Err(Failure::closed(&closed)),
        stop = interrupted() => {
            stop?;
            service.shutdown().await;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Returns when this process is asked to stop.
pub(crate) async fn interrupted() -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::output)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::output)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
