//! A fault-injecting MQTT proxy between clients and their broker: it drops, repeats and holds
//! packets and cuts connections. A file and a seed determine the faults.

mod faults;
mod log;
mod relay;
mod requested;

use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::args::Proxy;
use crate::output::{self, Error};
use faults::{Direction, FaultInjector, Plan};
use log::Log;

/// Maximum number of connections. Each has at most one packet of 2 MiB in each direction, so all of
/// them need at most a gigabyte. Further connections are closed.
const CONNECTIONS_MAX: usize = 256;

/// Maximum size of a fault file in bytes.
const FILE_MAX: u64 = 64 << 10;

/// Pause after a failed accept or connect, for example because too many files are open. Without it,
/// the loop would use a whole core until a connection closes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &Proxy) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(accept_connections(args))
}

async fn accept_connections(args: &Proxy) -> Result<(), Error> {
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
    let (start, mut connections) = (Instant::now(), JoinSet::new());
    let (mut number, mut is_paused) = (0, false);
    let requests = Arc::new(requested::Requests::default());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept(), if !is_paused => accepted,
            () = tokio::time::sleep(ACCEPT_PAUSE), if is_paused => {
                is_paused = false;
                continue;
            }
            Some(_) = connections.join_next() => continue,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        };
        let client = match accepted {
            Ok((client, _)) => client,
            Err(error) => {
                log.report(format!("accept: {error}"));
                is_paused = true;
                continue;
            }
        };
        number += 1;
        let injectors = [Direction::ToBroker, Direction::ToClient]
            .map(|direction| FaultInjector::new(&plan, seed, number, direction));
        let [mut to_broker, to_client] = injectors;
        if to_broker.is_refused(start.elapsed()) || connections.len() >= CONNECTIONS_MAX {
            log.fault(number, "refuse", "the connection");
            continue;
        }
        let (broker, log) = (broker.clone(), log.clone());
        let requests = Arc::clone(&requests);
        connections.spawn(async move {
            let server = match TcpStream::connect(&broker).await {
                Ok(server) => server,
                Err(error) => {
                    log.report(format!("connection {number}: broker {broker}: {error}"));
                    // The client stays connected until then, so that it does not reconnect at once.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    return;
                }
            };
            let injectors = [to_broker, to_client];
            relay::run(client, server, injectors, number, start, &requests, &log).await;
        });
    }
    connections.shutdown().await;
    // The last handle of the log: the writer prints the summary and ends.
    drop(log);
    writer.finish().await
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
