//! A running store, in every mode of `serve`.
//!
//! To add a mode, add a variant of [`Mode`], the match arms that the compiler requires, and a line
//! in [`in_each_mode`].

use std::process::Command;
use std::thread;

use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::process::Port;
use statestore_testkit::wire::raw::Raw;

use crate::process::{Ended, Running, run, run_with_input, statestore};

/// Mode of `serve`: the broker to which its clients connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A mosquitto, with `statestore serve --broker` as its store.
    External,
    /// `statestore serve` with the embedded broker.
    Embedded,
}

/// Turns each test function with a [`Mode`] parameter into one test for each mode.
macro_rules! in_each_mode {
    ($($test:ident),+ $(,)?) => {
        $crate::deployment::mode!(external, External, $($test)+);
        $crate::deployment::mode!(embedded, Embedded, $($test)+);
    };
}

/// The tests of one mode, in a separate module.
macro_rules! mode {
    ($module:ident, $mode:ident, $($test:ident)+) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::$test($crate::deployment::Mode::$mode);
                }
            )+
        }
    };
}

pub(crate) use {in_each_mode, mode};

impl Mode {
    /// Returns whether the broker is a separate process. It then survives the store, and any client
    /// can read requests.
    pub(crate) const fn has_external_broker(self) -> bool {
        match self {
            Self::External => true,
            Self::Embedded => false,
        }
    }

    /// Prints that the test does not apply to this mode.
    pub(crate) fn skip(self, reason: &str) {
        println!("{}: skipped in the mode {self:?}, {reason}", test_name());
    }

    /// Starts a deployment. Prints a line and returns `None` if that is impossible.
    pub(crate) fn start(self, options: &[&str]) -> Option<Deployment> {
        self.start_with(options, "")
    }

    /// Starts a deployment with more lines in the configuration of a separate broker.
    pub(crate) fn start_with(self, options: &[&str], lines: &str) -> Option<Deployment> {
        let broker = match self {
            Self::External => Some(Mosquitto::start_with(&test_name(), lines)?),
            Self::Embedded => None,
        };
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        // Reserved, since the embedded broker listens on the same port after a restart.
        let port = Port::free();
        let mut deployment = Deployment { mode: self, port, broker, store: None, options };
        deployment.start_store();
        Some(deployment)
    }
}

/// A broker, a store and their clients.
pub(crate) struct Deployment {
    pub(crate) mode: Mode,
    broker: Option<Mosquitto>,
    /// Port of the embedded broker.
    port: Port,
    store: Option<Running>,
    options: Vec<String>,
}

impl Deployment {
    pub(crate) fn port(&self) -> u16 {
        self.broker.as_ref().map_or_else(|| self.port.number(), Mosquitto::port)
    }

    pub(crate) fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port())
    }

    /// Returns the command with the address of this deployment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = statestore();
        command.env("STATESTORE_BROKER", self.url()).env("STATESTORE_TIMEOUT", "20s");
        command.args(arguments);
        command
    }

    /// Runs the command here to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        run(&mut self.command(arguments))
    }

    /// Repeats `get` until it ends with this code and this output, at most 2,000 times.
    pub(crate) fn wait_for_value(&self, key: &str, code: i32, value: &str) {
        let is_expected = |ended: &Ended| (ended.code, ended.text()) == (Some(code), value);
        let found = (0..2_000).map(|_| self.run(&["get", key])).any(|ended| is_expected(&ended));
        assert!(found, "{key} is not {value:?}: {:?}", self.run(&["get", key]));
    }

    /// Runs the command here with this standard input.
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Ended {
        run_with_input(&mut self.command(arguments), input)
    }

    /// Starts the command here.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Running {
        Running::start(&mut self.command(arguments))
    }

    /// Returns a client of raw packets, subscribed to its replies and notifications.
    pub(crate) fn raw(&self, client_id: &str) -> Raw {
        Raw::connect(self.port(), client_id)
    }

    /// Returns the command that starts the store, with the options of this deployment.
    pub(crate) fn serve(&self) -> Command {
        let mut command = match self.mode {
            Mode::External => self.command(&["serve", "--broker", &self.url()]),
            Mode::Embedded => {
                let mut command = statestore();
                command.args(["serve", "--listen", &format!("127.0.0.1:{}", self.port())]);
                command
            }
        };
        command.args(&self.options);
        command
    }

    /// The process of the store.
    pub(crate) fn store(&self) -> &Running {
        self.store.as_ref().expect("the store runs")
    }

    /// Returns the process of the store, so that the test can await its end.
    pub(crate) fn take_store(&mut self) -> Running {
        self.store.take().expect("the store runs")
    }

    /// Starts the store, which must not be running, and waits for its ready line.
    pub(crate) fn start_store(&mut self) {
        let mut serve = self.serve();
        if self.mode == Mode::External {
            // The session of a killed store may exist; the check would wait for its response.
            serve.arg("--take-over");
        }
        let store = Running::start(&mut serve);
        let line = store.line();
        let address = line.strip_prefix("statestore: ready on mqtt://127.0.0.1:").expect("ready");
        let port = address.split(|c: char| !c.is_ascii_digit()).next();
        assert_eq!(port.and_then(|port| port.parse().ok()), Some(self.port()), "{line:?}");
        self.store = Some(store);
    }

    /// Kills the store, as in a crash.
    pub(crate) fn kill_store(&mut self) {
        self.take_store().kill();
    }

    /// Kills the broker, as in a crash, and restarts it on the same port. All connections are lost.
    pub(crate) fn restart_broker(&mut self) {
        match self.mode {
            Mode::External => {
                let restarted = self.broker.as_mut().is_some_and(Mosquitto::restart);
                assert!(restarted, "mosquitto starts again");
            }
            Mode::Embedded => {
                self.kill_store();
                self.start_store();
            }
        }
    }

    /// Returns the ids of the serving processes, to measure their memory.
    pub(crate) fn process_ids(&self) -> Vec<u32> {
        match self.mode {
            Mode::External | Mode::Embedded => {
                [self.broker.as_ref().and_then(Mosquitto::process_id), Some(self.store().id())]
            }
        }
        .into_iter()
        .flatten()
        .collect()
    }
}

/// The name of the running test.
pub(crate) fn test_name() -> String {
    thread::current().name().unwrap_or("a test").to_owned()
}
