//! `proxy`, between real clients and a real store: what it breaks is broken, and what is repeated or lost has one effect.

use std::fs;

use statestore_tests::raw::Raw;

use crate::own_broker::{Own, Scratch};
use crate::process::{Ended, Running, run, statestore};

/// A proxy before this store, with these faults.
struct Between {
    process: Running,
    port: u16,
    _file: Scratch,
}

impl Between {
    fn start(own: &Own, name: &str, faults: &str) -> Self {
        let file = Scratch::new(&format!("proxy-{name}.toml"));
        fs::write(file.path(), faults).expect("a file");
        let mut proxy = statestore();
        proxy.args(["proxy", "--listen", "127.0.0.1:0", "--seed", "7", "--faults", file.path()]);
        let process =
            Running::start(proxy.args(["--broker", &format!("mqtt://127.0.0.1:{}", own.port)]));
        let line = process.line();
        let port = line.split(',').next().and_then(|url| url.rsplit(':').next()?.parse().ok());
        Self { process, port: port.unwrap_or_else(|| panic!("{line:?}")), _file: file }
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = statestore();
        command.args(arguments).args(["--timeout", "20s", "--broker"]);
        run(command.arg(format!("mqtt://127.0.0.1:{}", self.port)))
    }

    /// What it says when it is told to stop: the last line.
    fn end(self) -> String {
        self.process.signal("-TERM");
        let ended = self.process.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.text().lines().last().expect("a summary").to_owned()
    }
}

#[test]
fn without_faults_everything_passes() {
    let own = Own::start(&[]);
    let between = Between::start(&own, "none", "");
    between.run(&["set", "k", "v"]).version();
    between.run(&["get", "k"]).is(0, "v");
    assert_eq!(between.end(), "faults: none");
}

/// A request that comes twice is answered twice, and has one effect.
#[test]
fn what_is_repeated_has_one_effect() {
    let own = Own::start(&[]);
    let faults = "[[fault]]\nkind = \"repeat\"\ntopic = \"statestore/#\"\n";
    let between = Between::start(&own, "repeat", faults);
    let mut watcher = Raw::connect(own.port, "watcher");
    assert_eq!(watcher.command(&["KEYNOTIFY", "k"]), b"+OK\r\n");
    let mut raw = Raw::connect(between.port, "raw");
    assert_eq!(raw.command(&["SET", "k", "v"]), b"+OK\r\n");
    assert_eq!(raw.reply().payload, &b"+OK\r\n"[..], "and again");
    let heard = watcher.notification();
    assert!(heard.payload.ends_with(b"\r\nv\r\n"), "{heard:?}");
    assert!(watcher.hears_nothing_more(), "one effect");
    drop(raw);
    assert_eq!(between.end(), "faults: repeat 1");
}

/// Whoever lost something notices by the cut, and asks anew.
#[test]
fn what_is_dropped_and_cut_is_made_up_for() {
    for (name, faults, told) in [
        (
            "drop",
            "[[fault]]\nkind = \"drop\"\ndirection = \"to-broker\"\nprobability = 0.6\ncut-after = \"50ms\"\n",
            "drop ",
        ),
        ("cut", "[[fault]]\nkind = \"cut\"\npacket = \"publish\"\nprobability = 0.6\n", "cut "),
        (
            "cut-inside",
            "[[fault]]\nkind = \"cut-inside\"\npacket = \"publish\"\nprobability = 0.6\n",
            "cut-inside ",
        ),
        ("refuse", "[[fault]]\nkind = \"refuse\"\nprobability = 0.6\n", "refuse "),
    ] {
        let own = Own::start(&[]);
        let between = Between::start(&own, name, faults);
        // With this seed not all of them succeed, and not all fail.
        let goes_through =
            |arguments: &[&str]| (0..100).find(|_| between.run(arguments).code == Some(0));
        assert!(goes_through(&["set", "k", "v"]).is_some(), "{name}");
        assert!(goes_through(&["get", "k"]).is_some(), "{name}");
        assert!(run(&mut own.command("mqtt", &["get", "k"])).text() == "v", "{name}");
        let summary = between.end();
        assert!(summary.starts_with(&format!("faults: {told}")), "{name}: {summary}");
    }
}

/// The same packets of a connection meet the same faults with the same seed.
#[test]
fn a_seed_decides() {
    let faults =
        "[[fault]]\nkind = \"hold\"\nfor = \"1ms\"\nprobability = 0.5\ndirection = \"to-broker\"\n";
    let lines = |name: &str| {
        let own = Own::start(&[]);
        let between = Between::start(&own, name, faults);
        let mut raw = Raw::connect(between.port, "raw");
        for number in 0..30 {
            let value = number.to_string();
            assert_eq!(raw.command(&["SET", "k", &value]), b"+OK\r\n");
        }
        drop(raw);
        between.process.signal("-TERM");
        let said = between.process.end();
        let requests = said.text().lines().filter(|line| line.contains("Publish ")).count();
        assert!((5..25).contains(&requests), "{said:?}");
        requests
    };
    assert_eq!(lines("seed-1"), lines("seed-2"));
}

#[test]
fn what_cannot_be_is_said() {
    let file = Scratch::new("proxy-wrong.toml");
    fs::write(file.path(), "[[fault]]\nkind = \"lose\"\n").expect("a file");
    let proxy = |options: &[&str]| {
        run(statestore().args(["proxy", "--listen", "127.0.0.1:0"]).args(options))
    };
    proxy(&["--faults", file.path()]).fails(2, &["--faults ", "line 2: unknown variant"]);
    proxy(&["--broker", "mqtts://h"]).fails(2, &["mqtt://HOST:PORT"]);
    proxy(&["--faults", "/no/such/file"]).fails(2, &["/no/such/file: No such file"]);
}
