//! One attack, from the start of its store to the verdict.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::nice;
use statestore_server::rustls::pki_types::CertificateDer;
use statestore_server::rustls::pki_types::pem::PemObject as _;
use statestore_server::rustls::{ClientConfig, RootCertStore};
use statestore_testkit::credentials::Certificates;

use crate::abuse::attacks::{Attack, Needs};
use crate::abuse::honest::Honest;
use crate::abuse::scene::{Scene, Sent};
use crate::abuse::server::{self, MIB, Server};
use crate::abuse::target::Target;
use crate::abuse::verdict::{Complaints, Latency, Rule, evaluate};
use crate::abuse::{clock, priority};
use crate::output::print_line;

/// Added to the nice value of attackers, so that the store has priority.
const NICE: i32 = 10;

/// Memory of two password checks, besides the budget.
const PASSWORDS: usize = 2 * 20 * MIB;

/// Duration of the honest client alone, and during each attack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    pub(crate) alone: Duration,
    pub(crate) attacked: Duration,
    /// True if the two are compared.
    pub(crate) ratio: bool,
}

/// Result of an attack.
struct Outcome {
    sent: Sent,
    memory: Option<(usize, usize)>,
    alone: Latency,
    attacked: Latency,
    failures: usize,
    /// Number of other clients that connected, and of those that failed.
    newcomers: (usize, usize),
    complaints: Complaints,
}

pub(crate) fn print_header() {
    print_line(format_args!(
        "{:<22} {:>8} {:>8} {:>6} {:>6} {:>6} {:>7}  {:<18} {:<18} {:>5} {:>5} {:>10}",
        "attack",
        "packets",
        "KiB",
        "conns",
        "ended",
        "RSS",
        "budget",
        "alone 50/99/max",
        "attack (ms)",
        "p99 x",
        "fails",
        "newcomers"
    ));
}

/// Runs an attack, and returns whether the store withstands it. A run that only exceeds time limits
/// is repeated once.
pub(crate) fn attack(program: &Path, attack: &Attack, length: Length) -> bool {
    for is_last in [false, true] {
        let outcome = match once(program, attack, length) {
            Ok(Some(outcome)) => outcome,
            Ok(None) => return true,
            Err(error) => {
                print_line(format_args!("{:<22} FAILS: {error}", attack.name));
                return false;
            }
        };
        print_row(attack.name, &outcome);
        let Complaints { hard, timing } = outcome.complaints;
        if hard.is_empty() && timing.is_empty() {
            return true;
        }
        let again = hard.is_empty() && !is_last;
        let verdict = if again { "slow, once more" } else { "FAILS" };
        for complaint in hard.iter().chain(&timing) {
            print_line(format_args!("{:<22} {verdict}: {complaint}", attack.name));
        }
        if !again {
            return false;
        }
    }
    false
}

fn print_row(name: &str, outcome: &Outcome) {
    let Outcome { sent, memory, alone, attacked, failures, newcomers: (others, failed), .. } =
        outcome;
    let mib = |bytes: Option<usize>| {
        bytes.map_or_else(|| "-".to_owned(), |bytes| (bytes / MIB).to_string())
    };
    let (peak, budget) = (memory.map(|(peak, _)| peak), memory.map(|(_, budget)| budget));
    let ratio = attacked.p99.as_secs_f64() / alone.p99.as_secs_f64().max(1e-9);
    let verdict = if outcome.complaints.is_empty() { "withstood" } else { "" };
    print_line(format_args!(
        "{name:<22} {:>8} {:>8} {:>6} {:>6} {:>6} {:>7}  {alone:<18} {attacked:<18} {ratio:>5.1} {failures:>5} {failed:>4}/{others:<5} {verdict}",
        sent.packets,
        sent.bytes >> 10,
        sent.connections,
        sent.ended,
        mib(peak),
        mib(budget),
    ));
}

/// Runs an attack once. Prints a note and returns `None` if the machine lacks a requirement.
fn once(program: &Path, attack: &Attack, length: Length) -> Result<Option<Outcome>, String> {
    let mut more: Vec<OsString> = Vec::new();
    let mut target = Target { address: ([127, 0, 0, 1], 0).into(), login: None, tls: None };
    let mut extra = 0;
    // The files are removed when the store has ended.
    let _files = match attack.needs {
        Needs::Nothing => None,
        Needs::Passwords => {
            let users = Users::make(program)?;
            more.extend(["--no-client-id-binding".into(), "--password-file".into(), users.path()]);
            target.login = Some(("honest".into(), "a secret".into()));
            extra = PASSWORDS;
            Some(Files::Users(users))
        }
        Needs::WebSocket => {
            more.extend(["--listen-websocket".into(), "127.0.0.1:0".into()]);
            None
        }
        Needs::Metrics => {
            more.extend(["--metrics-listen".into(), "127.0.0.1:0".into()]);
            None
        }
        Needs::Tls => {
            let Some(made) = Certificates::make(attack.name) else { return Ok(None) };
            more.extend(["--listen-tls-cert".into(), made.path("broker.pem").into()]);
            more.extend(["--listen-tls-key".into(), made.path("broker.key").into()]);
            target.tls = Some(trusting(&made.read("ca.pem"))?);
            Some(Files::Certificates(made))
        }
    };
    let server = Server::start(program, &more)?;
    let attacked = match attack.needs {
        Needs::Metrics => server.metrics.ok_or("the store serves no metrics")?,
        Needs::WebSocket => server.websocket.ok_or("the store serves no WebSocket")?,
        _ => server.address,
    };
    target.address = server.address;
    let honest = Honest::start(&target, attack.has_newcomers)
        .map_err(|error| format!("the honest client: {error}"))?;
    clock::pause(length.alone);
    let begun = clock::now();
    let ends = begun + length.attacked.max(attack.stopped + length.alone);
    let (address, pid, act) = (attacked, server.pid(), attack.act);
    let attacker = thread::spawn(move || {
        priority::lower();
        // A failure only makes the attack stronger.
        let _ = nice(NICE);
        let scene = Scene::new(address, pid, ends);
        act(&scene);
        scene.sent.get()
    });
    let sent = attacker.join().map_err(|_| "the attacker has ended in a panic".to_owned())?;
    let account = honest.stop();
    let took = |is_attacked: bool| {
        let part = account.took.iter().filter(move |(at, _)| (*at >= begun) == is_attacked);
        Latency::of(part.map(|(_, took)| *took))
    };
    // The first requests of each phase are slower.
    let (alone, attacked) = (took(false), took(true));
    let budget = server.idle.map(|idle| server::budget(idle) + extra);
    let memory = server.peak().zip(budget);
    let rule = Rule {
        ratio: length.ratio && attack.stopped.is_zero() && !attack.may_be_lost,
        stopped: attack.stopped,
        may_be_lost: attack.may_be_lost,
    };
    let mut complaints = evaluate(rule, memory, &account, (alone, attacked));
    complaints.hard.extend(server.stop().err());
    let failures = account.failures.len() + account.lost.len();
    let newcomers = account.newcomers;
    Ok(Some(Outcome { sent, memory, alone, attacked, failures, newcomers, complaints }))
}

/// Files that the store uses.
#[expect(dead_code, reason = "they are only kept")]
enum Files {
    Users(Users),
    Certificates(Certificates),
}

/// A password file with one user, removed on drop.
struct Users(std::path::PathBuf);

impl Users {
    fn make(program: &Path) -> Result<Self, String> {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let name = format!("statestore-abuse-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let made = Self(folder);
        let make = || {
            std::fs::create_dir_all(&made.0)?;
            let mut passwd = Command::new(program);
            passwd.env_clear().arg("passwd").arg(made.path()).arg("honest").stdin(Stdio::piped());
            let mut passwd = passwd.spawn()?;
            if let Some(mut input) = passwd.stdin.take() {
                input.write_all(b"a secret\n")?;
            }
            passwd.wait()
        };
        match make() {
            Ok(status) if status.success() => Ok(made),
            Ok(status) => Err(format!("passwd: {status}")),
            Err(error) => Err(format!("passwd: {error}")),
        }
    }

    fn path(&self) -> OsString {
        self.0.join("users").into()
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn trusting(authority: &[u8]) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(authority).map_err(|error| error.to_string())?;
    roots.add(authority).map_err(|error| error.to_string())?;
    let provider = Arc::new(statestore_server::rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
