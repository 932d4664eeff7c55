//! `compare HOST:PORT [ROUNDS [THREADS]]`: the Rust client of the SDK and `statestore-client` on
//! one store.
//!
//! Both clients share this process and take turns, so that a slower machine slows down both. The
//! store is a separate process, for example `statestore serve`. Each line is `NAME OURS SDK RATIO`
//! with medians of all rounds; a ratio above 1 is in favour of `statestore-client`. With one
//! thread, both clients and the load run on a current-thread runtime; the default is two worker
//! threads.

#![expect(clippy::disallowed_methods, reason = "a comparison measures real time")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use azure_iot_operations_services::state_store::{Client, SetOptions};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use statestore_client::{Options, StateStore, connect};
use statestore_sdk_tests::{Application, TIMEOUT};
use tokio::task::JoinSet;

type Failure = Box<dyn Error + Send + Sync>;

const ROUNDS: usize = 15;

const THREADS: usize = 2;

/// Requests of one turn with many in flight; a quarter of them with one in flight.
const REQUESTS: usize = 4_000;

const MANY: usize = 64;

const VALUE_BYTES: usize = 64;

fn main() -> Result<ExitCode, Failure> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next();
    let rounds = arguments.next().map_or(Ok(ROUNDS), |rounds| rounds.parse());
    let threads = arguments.next().map_or(Ok(THREADS), |threads| threads.parse());
    let (Some((host, port)), Ok(rounds @ 1..), Ok(threads @ 1..)) =
        (address.as_deref().and_then(|address| address.rsplit_once(':')), rounds, threads)
    else {
        eprintln!("usage: compare HOST:PORT [ROUNDS [THREADS]]");
        return Ok(ExitCode::from(2));
    };
    let mut runtime = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.worker_threads(threads).enable_all().build()?;
    runtime.block_on(compare_all(host, port.parse()?, rounds))
}

async fn compare_all(host: &str, port: u16, rounds: usize) -> Result<ExitCode, Failure> {
    let id = std::process::id();
    let sdk = Application::connect_to(&format!("compare-sdk-{id}"), host, port);
    let store = connect(Options::new(format!("compare-{id}"), host, port))?;
    let clients = [Contestant::Ours(store), Contestant::Sdk(Arc::clone(&sdk.client))];
    println!("{:<32} {:>10} {:>10} {:>8}", "NAME", "OURS", "SDK", "RATIO");
    for request in [Request::Set, Request::Get] {
        for in_flight in [1, MANY] {
            compare(&clients, request, in_flight, rounds).await?;
        }
    }
    let [ours, _] = clients;
    if let Contestant::Ours(store) = ours {
        store.shutdown().await;
    }
    sdk.close().await;
    Ok(ExitCode::SUCCESS)
}

/// Measures one kind of request and prints its lines.
async fn compare(
    clients: &[Contestant; 2],
    request: Request,
    in_flight: usize,
    rounds: usize,
) -> Result<(), Failure> {
    let requests = if in_flight == 1 { REQUESTS / 4 } else { REQUESTS };
    let mut samples: [Samples; 2] = Default::default();
    for client in clients {
        client.run(request, requests / 4, in_flight).await?;
    }
    for _ in 0..rounds {
        for (client, samples) in clients.iter().zip(&mut samples) {
            let (cpu, start) = (cpu()?, Instant::now());
            let times = client.run(request, requests, in_flight).await?;
            samples.add(times, start.elapsed(), self::cpu()? - cpu);
        }
    }
    let [ours, sdk] = samples.map(Samples::medians);
    let name = |figure| format!("{}/{in_flight}-in-flight/{figure}", request.name());
    line(&name("per-second"), ours.rate, sdk.rate, ours.rate / sdk.rate);
    line(&name("cpu-us"), ours.cpu, sdk.cpu, sdk.cpu / ours.cpu);
    line(&name("p50-us"), ours.p50, sdk.p50, sdk.p50 / ours.p50);
    Ok(())
}

fn line(name: &str, ours: f64, sdk: f64, ratio: f64) {
    println!("{name:<32} {ours:>10.1} {sdk:>10.1} {ratio:>8.2}");
}

/// CPU time of this process so far.
fn cpu() -> Result<Duration, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let time = usage.user_time() + usage.system_time();
    Ok(Duration::from_micros(u64::try_from(time.num_microseconds())?))
}

#[derive(Clone, Copy)]
enum Request {
    Set,
    Get,
}

impl Request {
    const fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Get => "get",
        }
    }
}

#[derive(Clone)]
enum Contestant {
    Ours(StateStore),
    Sdk(Arc<Client>),
}

impl Contestant {
    /// Sends `requests` requests, `in_flight` at a time, and returns the duration of each.
    async fn run(
        &self,
        request: Request,
        requests: usize,
        in_flight: usize,
    ) -> Result<Vec<Duration>, Failure> {
        let mut tasks = JoinSet::new();
        for task in 0..in_flight {
            let share = requests / in_flight + usize::from(task < requests % in_flight);
            let client = self.clone();
            tasks.spawn(async move {
                let key = format!("compare-{task:03}");
                let mut times = Vec::with_capacity(share);
                for _ in 0..share {
                    let start = Instant::now();
                    client.send(request, &key).await?;
                    times.push(start.elapsed());
                }
                Ok::<_, Failure>(times)
            });
        }
        let mut times = Vec::with_capacity(requests);
        while let Some(share) = tasks.join_next().await {
            times.extend(share??);
        }
        Ok(times)
    }

    /// Sends a request and checks the reply. The runs with SETs precede those with GETs.
    async fn send(&self, request: Request, key: &str) -> Result<(), Failure> {
        let value = || vec![b'v'; VALUE_BYTES];
        let found = match (self, request) {
            (Self::Ours(store), Request::Set) => {
                store.set(key, value()).await?;
                return Ok(());
            }
            (Self::Ours(store), Request::Get) => {
                store.get(key).await?.map(|found| found.value.len())
            }
            (Self::Sdk(client), Request::Set) => {
                let options = SetOptions::default();
                let set = client.set(key.into(), value(), TIMEOUT, None, options).await?;
                return if set.response { Ok(()) } else { Err("the SET was not applied".into()) };
            }
            (Self::Sdk(client), Request::Get) => {
                client.get(key.into(), TIMEOUT).await?.response.map(|value| value.len())
            }
        };
        if found == Some(VALUE_BYTES) { Ok(()) } else { Err("the GET found another value".into()) }
    }
}

/// Figures of each round: requests per second, and microseconds per request.
#[derive(Default)]
struct Samples {
    rate: Vec<f64>,
    cpu: Vec<f64>,
    p50: Vec<f64>,
}

struct Figures {
    rate: f64,
    cpu: f64,
    p50: f64,
}

impl Samples {
    fn add(&mut self, times: Vec<Duration>, elapsed: Duration, cpu: Duration) {
        let requests = times.len() as f64;
        self.rate.push(requests / elapsed.as_secs_f64());
        self.cpu.push(cpu.as_secs_f64() * 1e6 / requests);
        self.p50.push(median(times.iter().map(|time| time.as_secs_f64() * 1e6).collect()));
    }

    fn medians(self) -> Figures {
        Figures { rate: median(self.rate), cpu: median(self.cpu), p50: median(self.p50) }
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}
