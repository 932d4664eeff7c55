//! `serve`: runs a server until a signal stops it.

use std::io::ErrorKind;
use std::process::ExitCode;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use statestore_client::Proxy;
use statestore_server::{Event, Reloaded, Server, ServerError, Summary};

use crate::args::{Origins, Serve};
use crate::failure::Failure;
use crate::output::{self, notice};
use crate::signals::Signals;
use crate::supervisor::Supervisor;
use crate::tls;

/// File descriptors for everything but clients: listeners, requests over HTTP, journal, and log.
const OTHER_DESCRIPTORS: u64 = 64;

/// Minimum limit of open files. One listener and one client need 11; with a lower limit, a server
/// would start and accept no client. A data directory needs more, and reports it.
const DESCRIPTORS_MIN: u64 = 16;

pub(crate) async fn run(args: Serve) -> Result<ExitCode, Failure> {
    if let Some(text) = &args.print {
        output::raw(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let descriptors = raise_descriptor_limit();
    if let Some(limit) = descriptors.filter(|limit| *limit < DESCRIPTORS_MIN) {
        return Err(Failure::bad_input(format_args!(
            "the limit of open files is {limit}: raise it to {DESCRIPTORS_MIN} or more \
             (`ulimit -n`, or LimitNOFILE of systemd)"
        )));
    }
    // Before anything else: until its handler is installed, a signal kills the process.
    let mut signals = Signals::new()?.with_hangup()?;
    let supervisor = Arc::new(Supervisor::from_env());
    supervisor.status("starting");
    let watchdog = Arc::clone(&supervisor);
    tokio::spawn(async move { watchdog.run_watchdog().await });
    let Serve { config, origins, .. } = args;
    let connections = u64::from(config.broker_limits.max_connections);
    if let Some(limit) = descriptors.filter(|_| config.broker.broker.is_empty())
        && limit < connections.saturating_add(OTHER_DESCRIPTORS)
    {
        notice(format_args!(
            "the limit of open files is {limit}, too low for {connections} connections: raise it \
             (`ulimit -n`, or LimitNOFILE of systemd), or lower max-connections"
        ));
    }
    let is_encrypted = config.broker.broker.first().is_some_and(|url| url.starts_with("mqtts"));
    // An invalid URL is reported when the server starts.
    let proxy = config.broker.proxy.as_ref().and_then(|url| Proxy::from_url(url.expose()).ok());
    let observer = Arc::clone(&supervisor);
    let server = Server::builder(config)
        .on_event(move |event| report(event, &observer))
        .diagnose(move |error, at| Box::pin(tls::diagnose(error, at, is_encrypted, proxy.clone())));
    let Some(started) = signals.unless_stopped(server.start()).await else {
        return Ok(ExitCode::SUCCESS);
    };
    let server = started.map_err(|error| failure(&error, &origins))?;
    loop {
        tokio::select! {
            ended = server.wait_ended() => {
                return match ended {
                    Ok(()) => Ok(ExitCode::SUCCESS),
                    Err(error) => Err(failure(&error, &origins)),
                };
            }
            signal = signals.received() => {
                // A slow disk must not delay a stop.
                let is_reloaded = signal == Signal::HUP
                    && signals.unless_stopped(reload(&server, &supervisor)).await.is_some();
                if !is_reloaded {
                    return match server.stop().await {
                        Ok(()) => Ok(ExitCode::SUCCESS),
                        Err(error) => Err(failure(&error, &origins)),
                    };
                }
            }
        }
    }
}

/// Raises the limit of open files to its maximum. Shells often set 1,024, which is less than the
/// connections that a server accepts. Returns the limit, if there is one.
pub(crate) fn raise_descriptor_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Without it, the server accepts fewer connections and logs that.
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}

/// Prints an event, and notifies the supervisor.
fn report(event: &Event, supervisor: &Supervisor) {
    let line = event.to_string();
    match event {
        Event::Ready(_) => {
            supervisor.ready(&line);
            // The store does not wait for a reader of this output.
            drop(tokio::spawn(output::line(format!("statestore: {line}\n"))));
        }
        Event::Standby { .. } => {
            supervisor.ready(&line);
            notice(line);
        }
        Event::LoadingProgress { records, .. } => {
            supervisor.loading(*records);
            notice(line);
        }
        Event::Stopping => {
            supervisor.stopping();
            notice(line);
        }
        Event::Reloaded(reloaded) => report_reload(reloaded),
        _ => notice(line),
    }
}

async fn reload(server: &Server, supervisor: &Supervisor) {
    supervisor.reloading();
    let reloaded = server.reload().await;
    if reloaded.reports.is_empty() {
        notice("SIGHUP: no file to reload");
    }
    report_reload(&reloaded);
    supervisor.ready("files reloaded");
}

pub(crate) fn report_reload(reloaded: &Reloaded) {
    for report in &reloaded.reports {
        notice(report);
        let warnings: Vec<String> = match &report.result {
            Ok(Summary::Policy { warnings, .. }) => {
                warnings.iter().map(ToString::to_string).collect()
            }
            Ok(Summary::Tls { warnings, .. }) => warnings.iter().map(ToString::to_string).collect(),
            _ => Vec::new(),
        };
        for (warning, path) in warnings.iter().zip(report.paths.iter().cycle()) {
            notice(format_args!("{}: {warning}", path.display()));
        }
    }
    if reloaded.disconnected > 0 {
        let clients = reloaded.disconnected;
        notice(format_args!("disconnected because their permissions have changed: {clients}"));
    }
}

/// The exit code of a server's error, and advice.
pub(crate) fn failure(error: &ServerError, origins: &Origins) -> Failure {
    match error {
        ServerError::Config(error) => Failure::bad_input(origins.locate(error)),
        ServerError::Directory(error) => Failure::directory(error),
        ServerError::Capture { path, source } if source.kind() == ErrorKind::AlreadyExists => {
            Failure::bad_input(format_args!(
                "--capture {} exists: remove it, or use another name",
                path.display()
            ))
        }
        ServerError::Capture { path, source } => Failure::path(path.display(), source),
        ServerError::NotDurable(closed) | ServerError::Disconnected(closed, true) => {
            Failure::ended(closed)
        }
        ServerError::Load(closed) | ServerError::Disconnected(closed, false) => {
            Failure::closed(closed, "STATESTORE_SERVE_PASSWORD")
        }
        error if error.is_address_unavailable() => Failure::Unreachable(error.to_string()),
        error => Failure::bad_input(error),
    }
}
