//! One history: the connections between a store and its clients lose, repeat, delay and cut
//! packets, while the store and clients are killed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use rustix::process::Signal;
use statestore_client::Options;
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::process::Port;
use tokio::time::{Instant, sleep};

use crate::faults::cluster::Form;
use crate::faults::load::Load;
use crate::faults::recorder::Recorder;
use crate::faults::run::{COMPLAINTS_MAX, is_served, output, settle, unanswered};
use crate::faults::store::Store;
use crate::output::print_line;

/// Time limit of a proxy to stop.
const STOPS: Duration = Duration::from_secs(15);

/// Faults of packets: tables for `proxy`, and their probability for each packet in
/// millionths.
///
/// Over TCP, nothing recovers a lost packet, so the connection is soon cut after a loss. A lost
/// notification is not requested again, so its connection is cut immediately.
const FAULTS: [(&str, u64); 9] = [
    ("kind = \"drop\"\ntopic = \"statestore/#\"\ncut-after = \"300ms\"", 300),
    ("kind = \"drop\"\ntopic = \"clients/+/services/#\"\ncut-after = \"300ms\"", 300),
    ("kind = \"drop\"\npacket = \"puback\"\ncut-after = \"300ms\"", 300),
    ("kind = \"repeat\"", 2_000),
    ("kind = \"repeat\"\npacket = \"puback\"", 200),
    ("kind = \"hold\"\nfor = \"150ms\"", 500),
    ("kind = \"cut\"", 200),
    ("kind = \"cut-inside\"", 200),
    ("kind = \"refuse\"", 100_000),
];

#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) form: Form,
    pub(crate) seed: u64,
    /// Duration of the faults.
    pub(crate) length: Duration,
    /// True if the store loses everything when it is killed, which the checker must detect.
    pub(crate) forgets: bool,
    pub(crate) logs: bool,
}

/// Result of a history.
pub(crate) struct Report {
    pub(crate) requests: usize,
    pub(crate) unanswered: usize,
    /// Number of faults by kind.
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) complaints: Vec<String>,
}

/// A store, with the proxies between it and its clients.
struct Site {
    /// Contains only the store.
    stores: Vec<Store>,
    proxies: Vec<Store>,
    /// Port that clients connect to.
    port: Port,
    directory: PathBuf,
    /// Port of the broker, without a proxy.
    direct: u16,
    _broker: Option<Mosquitto>,
    _ports: Vec<Port>,
}

impl Site {
    /// Starts everything. Prints a note and returns `None` if mosquitto is not installed.
    fn start(program: &Path, settings: Settings, rng: &mut Rng) -> Result<Option<Self>, String> {
        let Settings { form, seed, length, forgets, .. } = settings;
        let name = format!("statestore-histories-{}-{seed}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        fs::create_dir_all(&directory).map_err(failed)?;
        let faults = directory.join("faults.toml");
        fs::write(&faults, file(length, rng)).map_err(failed)?;
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let proxy = |port: &Port, target: u16| {
            let arguments = [
                "proxy".to_owned(),
                "--listen".to_owned(),
                format!("127.0.0.1:{}", port.number()),
                "--broker".to_owned(),
                format!("mqtt://127.0.0.1:{target}"),
                "--faults".to_owned(),
                faults.display().to_string(),
                "--seed".to_owned(),
                seed.to_string(),
            ];
            Store::start(&own, arguments.to_vec())
        };
        let mut arguments = vec!["serve".to_owned()];
        if !forgets {
            let data = directory.join("data").display().to_string();
            arguments.extend([
                "--data-dir".to_owned(),
                data,
                "--durable".to_owned(),
                "all".to_owned(),
            ]);
        }
        let (port, behind) = (Port::free(), Port::free());
        let mut proxies = Vec::new();
        let mut broker = None;
        let direct = if form == Form::External {
            let Some(mosquitto) = Mosquitto::start("histories") else { return Ok(None) };
            let direct = mosquitto.port();
            proxies.push(proxy(&behind, direct)?);
            arguments.extend(["--broker".to_owned()]);
            arguments.push(format!("mqtt://127.0.0.1:{}", behind.number()));
            arguments.extend(["--client-id".to_owned(), "the store".to_owned()]);
            broker = Some(mosquitto);
            direct
        } else {
            arguments.push("--listen".to_owned());
            arguments.push(format!("127.0.0.1:{}", behind.number()));
            behind.number()
        };
        proxies.push(proxy(&port, direct)?);
        let stores = vec![Store::start(program, arguments)?];
        let _ports = vec![behind];
        Ok(Some(Self { stores, proxies, port, directory, direct, _broker: broker, _ports }))
    }

    fn options(&self, client_id: &str) -> Options {
        let options = Options::new(client_id, "127.0.0.1", self.port.number());
        options.keep_alive(Duration::from_secs(2)).connect_timeout(Duration::from_secs(1))
    }

    async fn kill(&mut self, away: Duration) -> Result<(), String> {
        let store = self.stores.first_mut().ok_or("no store")?;
        store.kill();
        sleep(away).await;
        store.restart()
    }

    /// Ends the proxies, and parses the numbers of faults from their output.
    async fn faults(&mut self) -> Result<BTreeMap<String, u64>, String> {
        let mut faults = BTreeMap::new();
        for proxy in &mut self.proxies {
            proxy.signal(Signal::TERM);
            proxy.wait(STOPS).await?;
            for line in proxy.output() {
                let Some(rest) = line.text.strip_prefix("faults: ") else { continue };
                for (name, count) in rest.split(", ").filter_map(|each| each.split_once(' ')) {
                    *faults.entry(name.to_owned()).or_default() += count.parse().unwrap_or(0);
                }
            }
        }
        Ok(faults)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stores.clear();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The configuration of a proxy.
fn file(length: Duration, rng: &mut Rng) -> String {
    let mut text = String::new();
    for (fault, millionths) in FAULTS {
        let probability = Duration::from_micros(millionths * rng.u64(50..150) / 100).as_secs_f64();
        let until = length.as_secs();
        let _ = write!(
            text,
            "[[fault]]\n{fault}\nprobability = {probability:.6}\nuntil = \"{until}s\"\n\n"
        );
    }
    text
}

/// Runs one history. Prints a note and returns `None` if mosquitto is missing.
pub(crate) async fn run(program: &Path, settings: Settings) -> Result<Option<Report>, String> {
    let mut rng = Rng::with_seed(settings.seed);
    let Some(mut site) = Site::start(program, settings, &mut rng)? else { return Ok(None) };
    let recorder = Recorder::new();
    let begun = Instant::now();
    let mut load = Load::start(&recorder, |id| site.options(id), &mut rng)?;
    let mut kills = BTreeMap::new();
    let ended = kill(&mut site, &mut load, &recorder, settings, &mut kills, &mut rng).await;
    let mut complaints: Vec<String> = ended.err().into_iter().collect();
    complaints.extend(load.stop().await.err());
    let reader = Options::new("reader", "127.0.0.1", site.direct);
    complaints.extend(settle(reader, &load, &recorder).await);
    let mut faults = site.faults().await?;
    faults.append(&mut kills);
    for store in &mut site.stores {
        if let Some(status) = store.ended() {
            complaints.push(format!("the store has ended: {status}"));
        }
        let panics = store.output().into_iter().filter(|line| line.text.contains("panicked"));
        complaints.extend(panics.map(|line| line.text));
    }
    complaints.extend(recorder.check());
    if settings.logs || (!complaints.is_empty() && !settings.forgets) {
        print_line(output(&site.stores, begun));
        print_line(output(&site.proxies, begun));
    }
    complaints.truncate(COMPLAINTS_MAX);
    Ok(Some(recorder.with_history(|history| Report {
        requests: history.operations.len(),
        unanswered: unanswered(history),
        faults,
        complaints,
    })))
}

/// Kills the store and clients in turns, until the time is over.
async fn kill(
    site: &mut Site,
    load: &mut Load,
    recorder: &Recorder,
    settings: Settings,
    kills: &mut BTreeMap<String, u64>,
    rng: &mut Rng,
) -> Result<(), String> {
    // Proxies may need time to start.
    is_served(recorder, recorder.now()).await?;
    let begun = Instant::now();
    let mut is_stores_turn = true;
    loop {
        sleep(Duration::from_millis(rng.u64(1_000..4_000))).await;
        if begun.elapsed() >= settings.length {
            return Ok(());
        }
        let away = Duration::from_millis(rng.u64(0..1_000));
        let name = if is_stores_turn {
            site.kill(away).await?;
            "store killed"
        } else {
            load.kill(away).await?;
            "clients killed"
        };
        *kills.entry(name.to_owned()).or_default() += 1;
        is_stores_turn = !is_stores_turn;
    }
}
