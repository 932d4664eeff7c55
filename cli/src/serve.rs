//! A store, in a broker of its own or beside another one.

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
use crate::output::{self, say};
use crate::own_broker::{self, PasswordFile};
use crate::signals::{Asked, Signals};

pub(crate) async fn run(args: Serve) -> Result<ExitCode, Failure> {
    // First of all: a signal before its handler is there would end this process in its own way.
    let stop = Signals::new()?.with_hangup()?;
    let service = StoreService::builder();
    let service = service.config(config(&args)?).map_err(Failure::bad_input)?;
    let Some(url) = &args.broker else {
        let (broker, password_file, line) = own_broker::start(&args.listen).await?;
        let service = service.spawn(broker.store_link());
        let ended = host(service, stop, line, password_file).await;
        broker.stop().await;
        return ended;
    };
    let options = connection::options(url, &args.login, "statestore")?.presence(args.presence);
    let line = format!(
        "statestore: ready on {url} as client {}; requesters are who they claim to be, so let the broker's access \
         rules decide who may send requests",
        options.client_id
    );
    let link = RumqttcLink::for_store(options).fail_fast(connection::advice);
    let service = service.spawn(link);
    tokio::spawn(connection::say_if_slow(service.status(), url.clone()));
    host(service, stop, line, None).await
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
    line: String,
    password_file: Option<PasswordFile>,
) -> Result<ExitCode, Failure> {
    let is_stopped = told_to_stop(&mut stop, password_file.as_ref());
    tokio::pin!(is_stopped);
    tokio::select! {
        ready = service.connected() => ready.map_err(|closed| Failure::closed(&closed))?,
        () = &mut is_stopped => {
            service.shutdown().await;
            return Ok(ExitCode::SUCCESS);
        }
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
async fn told_to_stop(stop: &mut Signals, password_file: Option<&PasswordFile>) {
    while stop.received().await == Asked::Hangup {
        match password_file {
            Some(file) => file.reload(),
            None => say("SIGHUP: there is no --password-file to read again"),
        }
    }
}
