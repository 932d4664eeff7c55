//! A store, in a broker of its own or beside another one.

use std::io::Write;
use std::process::ExitCode;

use statestore_proto::hlc::NodeId;
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{self, WordCase};
use statestore_proto::store::{DialectPolicy, StoreConfig};
use statestore_rumqttc::RumqttcLink;
use statestore_tokio::StoreService;

use crate::args::{Dialect, Serve};
use crate::connection;
use crate::failure::Failure;
use crate::own_broker;
use crate::signals::Signals;

pub(crate) async fn run(args: Serve) -> Result<ExitCode, Failure> {
    // First of all: a signal before its handler is there would end this process in its own way.
    let stop = Signals::new()?;
    let service = StoreService::builder();
    let service = service.config(config(&args)?).map_err(Failure::bad_input)?;
    let Some(url) = &args.broker else {
        let (broker, line) = own_broker::start(&args.listen).await?;
        let ended = host(service.spawn(broker.store_link()), stop, &line).await;
        broker.stop().await;
        return ended;
    };
    let options = connection::options(url, &args.login, "statestore")?.presence(args.presence);
    let line = format!(
        "statestore: ready on {url} as client {}; requesters are who they claim to be, so let the broker's access \
         rules decide who may send requests",
        options.client_id
    );
    let service = service.spawn(RumqttcLink::for_store(options));
    tokio::spawn(connection::say_if_slow(service.status(), url.clone()));
    host(service, stop, &line).await
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
        .dialect(match args.dialect {
            Dialect::Auto => DialectPolicy::Auto,
            Dialect::Page => DialectPolicy::Pinned(message::Dialect::Page),
            Dialect::Deployed => DialectPolicy::Pinned(message::Dialect::Deployed),
        })
        .word_case(if args.strict_verbs { WordCase::Upper } else { WordCase::Any }))
}

/// Prints the line when requests reach the store, and returns when it is told to stop or cannot go on.
async fn host(
    mut service: StoreService,
    mut stop: Signals,
    line: &str,
) -> Result<ExitCode, Failure> {
    tokio::select! {
        ready = service.connected() => ready.map_err(|closed| Failure::closed(&closed))?,
        _ = stop.received() => {
            service.shutdown().await;
            return Ok(ExitCode::SUCCESS);
        }
    }
    // Requests come from the broker: a store serves whether somebody reads this or not.
    let _ = writeln!(std::io::stdout(), "{line}");
    tokio::select! {
        closed = service.stopped() => Err(Failure::ended(&closed)),
        _ = stop.received() => {
            service.shutdown().await;
            Ok(ExitCode::SUCCESS)
        }
    }
}
