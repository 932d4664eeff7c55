//! A proxy between MQTT clients and their broker that loses, repeats and holds packets and cuts connections, as a file and a
//! seed say.

mod faults;
mod relay;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::args::Proxy;
use crate::connection;
use crate::failure::Failure;
use crate::output;
use crate::own_broker::address;
use crate::signals::{Asked, Signals};
use faults::{Direction, Judge, Plan};

/// Connections at a time. Each has a packet of 2 MiB under way in each direction at most, so all of them a gigabyte; who comes
/// when there are as many is closed.
const CONNECTIONS_MAX: usize = 256;

/// Bytes of a file of faults.
const FILE_MAX: u64 = 64 << 10;

pub(crate) async fn run(args: Proxy) -> Result<ExitCode, Failure> {
    let mut stop = Signals::new()?;
    let plan = args.faults.as_deref().map(read).transpose()?.unwrap_or_default();
    let broker = connection::plain_address(&args.broker)?;
    let listen = address("--listen", &args.listen)?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let bad = |error| Failure::bad_input(format_args!("--listen {}: {error}", args.listen));
    let listener = TcpListener::bind(listen).await.map_err(bad)?;
    let own = listener.local_addr().map_err(bad)?;
    output::line(format!(
        "statestore: ready on mqtt://{own}, before {}, with --seed {seed}\n",
        args.broker
    ))
    .await?;
    let log = Log::default();
    let (start, mut connections) = (Instant::now(), JoinSet::new());
    let mut number = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            asked = stop.received() => {
                if asked == Asked::Hangup {
                    continue;
                }
                connections.shutdown().await;
                output::line(log.summary()).await?;
                return Ok(ExitCode::SUCCESS);
            }
        };
        let Ok((client, _)) = accepted else { continue };
        number += 1;
        let judges = [Direction::ToBroker, Direction::ToClient]
            .map(|direction| Judge::new(&plan, seed, number, direction));
        let [mut asks, answers] = judges;
        if asks.refuses(start.elapsed()) || connections.len() >= CONNECTIONS_MAX {
            log.note(number, "refuse", "the connection").await;
            continue;
        }
        let (broker, log) = (broker.clone(), log.clone());
        connections.spawn(async move {
            let server = match TcpStream::connect((&*broker.0, broker.1)).await {
                Ok(server) => server,
                Err(error) => {
                    output::say(format_args!("connection {number}: the broker: {error}"));
                    return;
                }
            };
            relay::run(client, server, [asks, answers], number, start, &log).await;
        });
    }
}

fn read(path: &Path) -> Result<Plan, Failure> {
    let bad = |error: &dyn std::fmt::Display| {
        Failure::bad_input(format_args!("--faults {}: {error}", path.display()))
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| bad(&error))?;
    file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(|error| bad(&error))?;
    if text.len() as u64 > FILE_MAX {
        return Err(bad(&"it is larger than 64 KiB"));
    }
    Plan::parse(&text).map_err(|error| bad(&error))
}

/// What was done, as lines and in sum.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Log {
    async fn note(&self, connection: u64, what: &'static str, about: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
        // Who reads them no more wants no more of them.
        let line = format!("connection {connection}: {what} {about}\n");
        let _ = output::line(crate::escape::printable(&line)).await;
    }

    fn summary(&self) -> String {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let each = counts.iter().map(|(what, count)| format!("{what} {count}"));
        let each = each.collect::<Vec<_>>().join(", ");
        format!("faults: {}\n", if each.is_empty() { "none".to_owned() } else { each })
    }
}
