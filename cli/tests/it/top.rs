//! `top` on a terminal, with real stores.

use std::io::Write as _;
use std::process::Command;

use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::process::HANGS;
use statestore_testkit::wire::raw::{Raw, RawRequest, unix_ms, words};
use tokio::time::Instant;

use crate::deployment::test_name;
use crate::embedded_broker::EmbeddedStore;
use crate::process::{Running, run, statestore};
use crate::terminal::{COLUMNS, ROWS, Terminal};

/// A command with a screen.
struct Screen {
    terminal: Terminal,
    shown: vt100::Parser,
}

impl Screen {
    fn start(command: &Command) -> Self {
        Self { terminal: Terminal::start(command), shown: vt100::Parser::new(ROWS, COLUMNS, 0) }
    }

    fn press(&mut self, keys: &str) {
        self.terminal.keys.write_all(keys.as_bytes()).expect("the terminal accepts keys");
    }

    /// Waits until the screen contains all parts.
    fn shows(&mut self, parts: &[&str]) {
        let begun = Instant::now();
        loop {
            let shown = self.shown.screen().contents();
            if parts.iter().all(|part| shown.contains(part)) {
                return;
            }
            // Redrawing writes only changes.
            match self.terminal.written.recv_timeout(HANGS.saturating_sub(begun.elapsed())) {
                Ok(bytes) => self.shown.process(&bytes),
                Err(_) => panic!("{parts:?} is not shown:\n{shown}"),
            }
        }
    }

    /// Waits for the exit, checks that the terminal is restored, and returns the exit code.
    fn end(mut self) -> Option<i32> {
        let status = self.terminal.child.wait().expect("it ends");
        // Until no process has the terminal open.
        while let Ok(bytes) = self.terminal.written.recv_timeout(HANGS) {
            self.shown.process(&bytes);
        }
        assert!(!self.shown.screen().alternate_screen(), "the terminal is restored");
        assert!(!self.shown.screen().hide_cursor());
        status.code()
    }
}

fn top(port: u16, options: &[&str]) -> Screen {
    let mut command = statestore();
    command.args(["top", "--broker", &format!("mqtt://localhost:{port}")]).args(options);
    Screen::start(&command)
}

/// Lists keys, selects a key, observes changes of other clients, and edits the key.
fn browse(port: u16, terminal: &mut Screen) {
    let statestore = |arguments: &[&str]| {
        let mut command = statestore();
        command.args(arguments).args(["--broker", &format!("mqtt://localhost:{port}")]);
        run(&mut command)
    };
    terminal.shows(&["* (all: 2)", "alpha", "beta", "select a key"]);
    terminal.press("j");
    terminal.shows(&["live", "21 degrees", "10 bytes, as text"]);
    statestore(&["set", "alpha", "{\"degrees\": 22}"]).version();
    terminal.shows(&["live, 1 change", "15 bytes"]);
    terminal.press("v");
    terminal.shows(&["as JSON", "\"degrees\": 22"]);
    // The edited value is set for a minute, because no other client has changed the key.
    terminal.press("e\x15cold\x1b[B60s\r");
    terminal.shows(&["alpha: set", "cold", "expires in "]);
    statestore(&["get", "alpha"]).is(0, "cold");
    terminal.press("e\x15mine");
    terminal.shows(&["value: mine_"]);
    statestore(&["set", "alpha", "theirs"]).version();
    // The editor does not show the new value, so it must not overwrite it.
    terminal.shows(&["live, 3 changes"]);
    terminal.press("\r");
    terminal.shows(&["not set: the value has changed"]);
    statestore(&["get", "alpha"]).is(0, "theirs");
    // The editor opens again with its input.
    terminal.shows(&["value: mine_"]);
    terminal.press("\x1b");
    terminal.shows(&["as text, because it is not JSON", "theirs"]);
    terminal.press("dy");
    terminal.shows(&["alpha: deleted", "no value", "* (all: 1)"]);
    statestore(&["get", "alpha"]).is(1, "");
    terminal.press("/\x15b*\r");
    terminal.shows(&["b* (all: 1)"]);
}

fn fill(port: u16) {
    for (key, value) in [("alpha", "21 degrees"), ("beta", "\x1b[2Jno")] {
        let mut command = statestore();
        command.args(["set", key, value, "--broker", &format!("mqtt://localhost:{port}")]);
        run(&mut command).version();
    }
}

#[test]
fn keys_of_embedded_broker_are_browsed_and_edited() {
    let server = EmbeddedStore::start(&[]);
    fill(server.port);
    let mut terminal = top(server.port, &[]);
    browse(server.port, &mut terminal);
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn keys_of_store_with_external_broker_are_browsed_and_edited() {
    let Some(broker) = Mosquitto::start(&test_name()) else { return };
    let url = format!("mqtt://localhost:{}", broker.port());
    let store = Running::start(statestore().args(["serve", "--broker", &url]));
    store.line();
    fill(broker.port());
    let mut terminal = top(broker.port(), &[]);
    browse(broker.port(), &mut terminal);
    // A signal ends the command like the key q.
    let pid = terminal.terminal.child.id().to_string();
    let killed = Command::new("kill").args(["-TERM", &pid]).status().expect("kill");
    assert!(killed.success());
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn keys_pressed_after_top_ends_reach_the_next_program() {
    let server = EmbeddedStore::start(&[]);
    fill(server.port);
    let url = format!("mqtt://localhost:{}", server.port);
    let mut shell = Command::new("sh");
    let script = r#""$0" top --broker "$1"; read line; echo "next: $line""#;
    shell.args(["-c", script, env!("CARGO_BIN_EXE_statestore"), &url]);
    let mut terminal = Screen::start(&shell);
    terminal.shows(&["alpha"]);
    terminal.press("q");
    while terminal.shown.screen().alternate_screen() {
        let bytes =
            terminal.terminal.written.recv_timeout(HANGS).expect("the terminal is restored");
        terminal.shown.process(&bytes);
    }
    terminal.press("every key\n");
    terminal.shows(&["next: every key"]);
}

/// Returns the metrics URL that a store prints.
fn metrics_url(server: &EmbeddedStore) -> String {
    let line = server.store.complaint();
    let url = line.split_whitespace().find(|word| word.starts_with("http://"));
    url.unwrap_or_else(|| panic!("{line:?}")).trim_end_matches("/metrics").to_owned()
}

#[test]
fn traffic_is_shown() {
    let server = EmbeddedStore::start(&["--metrics-listen", "127.0.0.1:0", "--traffic"]);
    fill(server.port);
    let mut raw = Raw::connect(server.port, "far-off");
    for _ in 0..20 {
        raw.command(&["GET", "hot"]);
    }
    let ahead = format!("{}:0:far-off", unix_ms() + 300_000);
    let ahead =
        RawRequest::deployed("far-off", words(&["SET", "hot", "v"])).replacing("__ts", ahead);
    assert!(raw.answer(&ahead).starts_with(b"-ERR"));
    let mut terminal = top(server.port, &["--metrics-url", &metrics_url(&server)]);
    terminal.press("3");
    terminal.shows(&[
        "clients by requests per second",
        "far-off",
        "keys by",
        "hot",
        "alpha",
        "beta",
    ]);
    terminal.press("s");
    terminal.shows(&[
        "clients by requests ",
        "        21         1    +",
        "        21         1         1  hot",
    ]);
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn metrics_are_shown() {
    let server = EmbeddedStore::start(&["--metrics-listen", "127.0.0.1:0"]);
    fill(server.port);
    let mut terminal = top(server.port, &["--metrics-url", &metrics_url(&server)]);
    terminal.press("3");
    terminal.shows(&["start it with `serve --metrics-listen HOST:PORT --traffic`"]);
    terminal.press("2");
    terminal.shows(&["keys 2", "latency p50", "applied", "set "]);
    terminal.press("?");
    terminal.shows(&["select a key", "quit"]);
    terminal.press("\x03");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn error_without_a_terminal_names_alternatives() {
    run(statestore().args(["top"])).fails(2, &["not a terminal", "`statestore keys`"]);
    let server = EmbeddedStore::start(&[]);
    let mut terminal = top(server.port, &["--metrics-url", "localhost:1"]);
    terminal.shows(&["http://HOST:PORT"]);
}
