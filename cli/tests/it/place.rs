//! A running store, in every form of serving.
//!
//! To add a form, add a variant of [`Form`], the match arms that the compiler requires, and a line
//! in [`everywhere`].

use std::process::Command;
use std::thread;

use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::wire::raw::Raw;

use crate::process::{Ended, Running, run, run_with_input, statestore};

/// A form of serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A mosquitto, with `statestore serve --broker` as its store.
    Beside,
    /// `statestore serve` with the embedded broker.
    Embedded,
}

/// Turns each test function with a [`Form`] parameter into one test for every form.
macro_rules! everywhere {
    ($($test:ident),+ $(,)?) => {
        $crate::place::form!(beside, Beside, $($test)+);
        $crate::place::form!(embedded, Embedded, $($test)+);
    };
}

/// The tests of one form, in a separate module.
macro_rules! form {
    ($module:ident, $form:ident, $($test:ident)+) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::$test($crate::place::Form::$form);
                }
            )+
        }
    };
}

pub(crate) use {everywhere, form};

impl Form {
    /// Returns whether the broker is a separate process. It then survives the store, and any client
    /// can read requests.
    pub(crate) const fn has_broker_apart(self) -> bool {
        match self {
            Self::Beside => true,
            Self::Embedded => false,
        }
    }

    /// Prints that the test does not apply to this form.
    pub(crate) fn skip(self, reason: &str) {
        println!("{}: skipped in the form {self:?}, {reason}", test_name());
    }

    /// Starts a place. Prints a line and returns `None` if that is impossible.
    pub(crate) fn start(self, options: &[&str]) -> Option<Place> {
        self.start_with(options, "")
    }

    /// Starts a place with more lines in the configuration of a separate broker.
    pub(crate) fn start_with(self, options: &[&str], lines: &str) -> Option<Place> {
        let broker = match self {
            Self::Beside => Some(Mosquitto::start_with(&test_name(), lines)?),
            Self::Embedded => None,
        };
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut place = Place {
            form: self,
            port: broker.as_ref().map_or(0, Mosquitto::port),
            broker,
            store: None,
            options,
        };
        place.start_store();
        Some(place)
    }
}

/// A broker, a store and their clients.
pub(crate) struct Place {
    pub(crate) form: Form,
    broker: Option<Mosquitto>,
    port: u16,
    store: Option<Running>,
    options: Vec<String>,
}

impl Place {
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port())
    }

    /// Returns the command with the address of this place.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = statestore();
        command.env("STATESTORE_BROKER", self.url()).env("STATESTORE_TIMEOUT", "5s");
        command.args(arguments);
        command
    }

    /// Runs the command here to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        run(&mut self.command(arguments))
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

    /// Returns the command that starts the store, with the options of this place.
    pub(crate) fn serve(&self) -> Command {
        let mut command = match self.form {
            Form::Beside => self.command(&["serve", "--broker", &self.url()]),
            Form::Embedded => {
                let mut command = statestore();
                command.args(["serve", "--listen", &format!("127.0.0.1:{}", self.port)]);
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
        if self.form == Form::Beside {
            // The session of a killed store may exist; the check would wait for its response.
            serve.arg("--take-over");
        }
        let store = Running::start(&mut serve);
        let line = store.line();
        let told = line.strip_prefix("statestore: ready on mqtt://127.0.0.1:").expect("ready");
        let port = told.split(|c: char| !c.is_ascii_digit()).next().and_then(|p| p.parse().ok());
        let port = port.expect("a port");
        assert!(self.port == 0 || self.port == port, "{line:?}");
        self.port = port;
        self.store = Some(store);
    }

    /// Kills the store, as in a crash.
    pub(crate) fn kill_store(&mut self) {
        self.take_store().kill();
    }

    /// Kills the broker, as in a crash, and restarts it on the same port. All connections are lost.
    pub(crate) fn restart_broker(&mut self) {
        match self.form {
            Form::Beside => {
                let restarted = self.broker.as_mut().is_some_and(Mosquitto::restart);
                assert!(restarted, "mosquitto starts again");
            }
            Form::Embedded => {
                self.kill_store();
                self.start_store();
            }
        }
    }

    /// Returns the ids of the serving processes, to measure their memory.
    pub(crate) fn process_ids(&self) -> Vec<u32> {
        match self.form {
            Form::Beside | Form::Embedded => {
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
