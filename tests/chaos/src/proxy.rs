//! A fault-injecting TCP proxy between clients and their server. It drops, repeats and holds MQTT
//! packets and cuts connections: a file and a seed determine these faults. For other protocols, it
//! stops or closes all connections on request.

mod faults;
mod log;
mod relay;
mod requested;

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::args::Proxy as Options;
use crate::output::{self, Error};
use faults::{Direction, FaultInjector, Plan};
use log::Log;
use requested::Requests;

/// Maximum number of connections. Each has at most one packet of 2 MiB in each direction, so all of
/// them need at most a gigabyte. Further connections are closed.
const CONNECTIONS_MAX: usize = 256;

/// Maximum size of a fault file in bytes.
const FILE_MAX: u64 = 64 << 10;

/// Pause after a failed accept or connect, for example because too many files are open. Without it,
/// the loop would use a whole core until a connection closes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &Options) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(run_until_signal(args))
}

async fn run_until_signal(args: &Options) -> Result<(), Error> {
    let handler = |kind| signal(kind).map_err(|error| error.to_string());
    let (mut terminate, mut interrupt) =
        (handler(SignalKind::terminate())?, handler(SignalKind::interrupt())?);
    let plan = args.faults.as_deref().map(read_plan).transpose()?.unwrap_or_default();
    let broker = broker_address(&args.broker)?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let bad = |error| format!("--listen {}: {error}", args.listen);
    let listener = TcpListener::bind(&args.listen).await.map_err(bad)?;
    let address = listener.local_addr().map_err(bad)?;
    output::write(&format!(
        "statestore-chaos: ready on mqtt://{address}, before {}, with --seed {seed}\n",
        args.broker
    ))?;
    let (log, writer) = Log::start();
    let (mode, changes) = watch::channel(Mode::Open);
    let faults = Faults { plan, seed, start: Instant::now(), requests: Requests::default() };
    let shared = Shared { target: broker, faults: Some(Arc::new(faults)), mode: changes, log };
    let accepting = tokio::spawn(accept_connections(listener, shared));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    drop(mode);
    // It drops the last handle of the log: the writer prints the summary and ends.
    accepting.await.map_err(|error| error.to_string())?;
    writer.finish().await
}

/// What a proxy does with its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Open,
    /// Connections are closed, and new ones are closed immediately.
    Closed,
    /// Nothing is forwarded or closed. Bytes are delivered once the proxy opens again, as in TCP.
    Silent,
}

/// A proxy of any protocol in this process. Dropping it ends the proxy.
pub(crate) struct Proxy {
    port: u16,
    mode: watch::Sender<Mode>,
}

impl Proxy {
    /// Starts a proxy to this port of this machine.
    pub(crate) async fn start(target: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (mode, changes) = watch::channel(Mode::Open);
        let target = format!("127.0.0.1:{target}");
        let shared = Shared { target, faults: None, mode: changes, log: Log::none() };
        tokio::spawn(accept_connections(listener, shared));
        Ok(Self { port, mode })
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn switch(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

/// What the connections of a proxy share.
#[derive(Clone)]
struct Shared {
    /// Host and port of the server.
    target: String,
    /// Faults of MQTT packets. Without them, the bytes of any protocol are forwarded.
    faults: Option<Arc<Faults>>,
    /// Ends with the proxy.
    mode: watch::Receiver<Mode>,
    log: Log,
}

struct Faults {
    plan: Plan,
    seed: u64,
    start: Instant,
    requests: Requests,
}

impl Faults {
    /// The faults of both directions of a connection; `None` if the connection is refused.
    fn injectors(&self, number: u64) -> Option<[FaultInjector; 2]> {
        let mut injectors = [Direction::ToBroker, Direction::ToClient]
            .map(|direction| FaultInjector::new(&self.plan, self.seed, number, direction));
        let [to_broker, _] = &mut injectors;
        (!to_broker.is_refused(self.start.elapsed())).then_some(injectors)
    }
}

/// Waits until the proxy is not silent. Returns `None` if it is closed, or has ended.
async fn wait_until_open(mode: &mut watch::Receiver<Mode>) -> Option<()> {
    let mode = *mode.wait_for(|mode| *mode != Mode::Silent).await.ok()?;
    (mode == Mode::Open).then_some(())
}

/// Accepts connections until the sender of the mode is dropped.
async fn accept_connections(listener: TcpListener, shared: Shared) {
    let (mut mode, mut connections) = (shared.mode.clone(), JoinSet::new());
    let (mut number, mut is_paused) = (0, false);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept(), if !is_paused => accepted,
            () = tokio::time::sleep(ACCEPT_PAUSE), if is_paused => {
                is_paused = false;
                continue;
            }
            Some(_) = connections.join_next() => continue,
            _ = mode.wait_for(|_| false) => break,
        };
        let client = match accepted {
            Ok((client, _)) => client,
            Err(error) => {
                shared.log.report(format!("accept: {error}"));
                is_paused = true;
                continue;
            }
        };
        number += 1;
        let injectors = shared.faults.as_ref().map(|faults| faults.injectors(number));
        if injectors.as_ref().is_some_and(Option::is_none) || connections.len() >= CONNECTIONS_MAX {
            shared.log.fault(number, "refuse", "the connection");
            continue;
        }
        connections.spawn(connect(client, number, injectors.flatten(), shared.clone()));
    }
    connections.shutdown().await;
}

async fn connect(
    client: TcpStream,
    number: u64,
    injectors: Option<[FaultInjector; 2]>,
    mut shared: Shared,
) {
    if wait_until_open(&mut shared.mode).await.is_none() {
        return;
    }
    match TcpStream::connect(&shared.target).await {
        Ok(server) => relay::run(client, server, number, injectors, &shared).await,
        Err(error) => {
            shared.log.report(format!("connection {number}: broker {}: {error}", shared.target));
            // The client stays connected until then, so that it does not reconnect at once.
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Returns host and port of a broker without TLS.
fn broker_address(url: &str) -> Result<String, Error> {
    let address = url.strip_prefix("mqtt://").unwrap_or_default().trim_end_matches('/');
    if address.is_empty() || address.contains(['/', '@']) {
        return Err(format!("--broker {url}: write it as mqtt://HOST:PORT"));
    }
    let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    let has_port = matches!(port, Some(Ok(_)));
    Ok(if has_port { address.to_owned() } else { format!("{address}:1883") })
}

fn read_plan(path: &Path) -> Result<Plan, Error> {
    let bad = |error: &dyn Display| format!("--faults {}: {error}", path.display());
    let mut text = String::new();
    let file = File::open(path).map_err(|error| bad(&error))?;
    file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(|error| bad(&error))?;
    if text.len() as u64 > FILE_MAX {
        return Err(bad(&"it is larger than 64 KiB"));
    }
    Plan::parse(&text).map_err(|error| bad(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broker_is_a_url_without_tls_and_user() {
        for (url, address) in [
            ("mqtt://127.0.0.1:1", "127.0.0.1:1"),
            ("mqtt://broker.example", "broker.example:1883"),
            ("mqtt://[::1]/", "[::1]:1883"),
            ("mqtt://[::1]:1884", "[::1]:1884"),
        ] {
            assert_eq!(broker_address(url).as_deref(), Ok(address));
        }
        for url in ["127.0.0.1:1", "mqtts://h", "mqtt://", "mqtt://u:p@h", "mqtt://h/x"] {
            assert!(broker_address(url).is_err(), "{url}");
        }
    }
}
