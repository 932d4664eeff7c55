//! `proxy` between real clients and a real store: it injects faults, and repeated or lost packets
//! have one effect.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use statestore_mqtt::Reason;
use statestore_server::{Bytes, Error};
use statestore_testkit::process::HANGS;
use statestore_testkit::process::command::{Running, run};
use statestore_testkit::wire::raw::{Raw, RawRequest, words};

use crate::support::{Scratch, Store, tools};

/// A proxy between clients and a store.
struct Between<'a> {
    store: &'a Store,
    process: Running,
    port: u16,
    _file: Scratch,
}

impl<'a> Between<'a> {
    fn start(store: &'a Store, name: &str, faults: &str) -> Self {
        let file = Scratch::new(&format!("proxy-{name}.toml"), faults);
        let mut proxy = tools();
        proxy.args(["proxy", "--listen", "127.0.0.1:0", "--seed", "7", "--faults", file.path()]);
        let process =
            Running::start(proxy.args(["--broker", &format!("mqtt://127.0.0.1:{}", store.port())]));
        let line = process.line();
        let port = line.split(',').next().and_then(|url| url.rsplit(':').next()?.parse().ok());
        let port = port.unwrap_or_else(|| panic!("{line:?}"));
        Self { store, process, port, _file: file }
    }

    /// Stores a value over a new connection.
    fn set(&self, key: &'static str, value: &'static str) -> Result<(), Error> {
        self.store.client(self.port).set(key, value).wait().map(|_| ())
    }

    /// Reads a value over a new connection.
    fn get(&self, key: &'static str) -> Result<Option<Bytes>, Error> {
        Ok(self.store.client(self.port).get(key).wait()?.map(|found| found.value))
    }

    /// Stops the proxy and returns its last line, the summary.
    fn stop(self) -> String {
        self.process.signal("-TERM");
        let ended = self.process.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.text().lines().last().expect("a summary").to_owned()
    }
}

#[test]
fn proxy_without_faults_forwards_everything() {
    let store = Store::start();
    let between = Between::start(&store, "none", "");
    between.set("k", "v").expect("no faults");
    assert_eq!(between.get("k").expect("no faults").as_deref(), Some(&b"v"[..]));
    assert_eq!(between.stop(), "faults: none");
}

#[test]
fn repeated_request_has_two_replies_and_one_effect() {
    let store = Store::start();
    let faults = "[[fault]]\nkind = \"repeat\"\ntopic = \"statestore/#\"\n";
    let between = Between::start(&store, "repeat", faults);
    let mut watcher = Raw::connect(store.port(), "watcher");
    assert_eq!(watcher.command(&["KEYNOTIFY", "k"]), b"+OK\r\n");
    let mut raw = Raw::connect(between.port, "raw").bypass_session();
    assert_eq!(raw.command(&["SET", "k", "v"]), b"+OK\r\n");
    assert_eq!(raw.reply().payload, &b"+OK\r\n"[..], "the second reply");
    let notification = watcher.notification();
    assert!(notification.payload.ends_with(b"\r\nv\r\n"), "{notification:?}");
    assert!(watcher.receives_nothing_more(), "one effect");
    drop(raw);
    assert_eq!(between.stop(), "faults: repeat 1");
}

/// A client that lost a packet reconnects after the cut and sends its request again.
#[test]
fn clients_recover_from_dropped_packets_and_cuts() {
    for (name, faults, action) in [
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
        let store = Store::start();
        let between = Between::start(&store, name, faults);
        // With this seed some attempts fail.
        assert!((0..100).any(|_| between.set("k", "v").is_ok()), "{name}");
        assert!((0..100).any(|_| between.get("k").is_ok_and(|found| found.is_some())), "{name}");
        let stored = store.client(store.port()).get("k").wait().expect("no faults");
        assert_eq!(stored.map(|found| found.value).as_deref(), Some(&b"v"[..]), "{name}");
        let summary = between.stop();
        assert!(summary.starts_with(&format!("faults: {action}")), "{name}: {summary}");
    }
}

#[test]
fn same_seed_causes_the_same_faults() {
    let faults =
        "[[fault]]\nkind = \"hold\"\nfor = \"1ms\"\nprobability = 0.5\ndirection = \"to-broker\"\n";
    let lines = |name: &str| {
        let store = Store::start();
        let between = Between::start(&store, name, faults);
        let mut raw = Raw::connect(between.port, "raw");
        for number in 0..30 {
            let value = number.to_string();
            assert_eq!(raw.command(&["SET", "k", &value]), b"+OK\r\n");
        }
        drop(raw);
        between.process.signal("-TERM");
        let ended = between.process.end();
        let requests = ended.text().lines().filter(|line| line.contains("Publish ")).count();
        assert!((5..25).contains(&requests), "{ended:?}");
        requests
    };
    assert_eq!(lines("seed-1"), lines("seed-2"));
}

#[test]
fn invalid_options_are_rejected() {
    let file = Scratch::new("proxy-wrong.toml", "[[fault]]\nkind = \"lose\"\n");
    let proxy =
        |options: &[&str]| run(tools().args(["proxy", "--listen", "127.0.0.1:0"]).args(options));
    proxy(&["--faults", file.path()]).fails(2, &["--faults ", "line 2: unknown variant"]);
    proxy(&["--broker", "mqtts://h"]).fails(2, &["mqtt://HOST:PORT"]);
    proxy(&["--faults", "/no/such/file"]).fails(2, &["/no/such/file: No such file"]);
}

/// CPU time of a process in clock ticks of 10 ms, or `None` if the system does not report it.
fn cpu_ticks(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // User and system time are fields 14 and 15. The second field is the name in parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

#[test]
fn failed_accept_pauses_and_later_connections_succeed() {
    let store = Store::start();
    let mut shell = Command::new("sh");
    // A few files are open already; each connection needs two.
    shell.args(["-c", "ulimit -n 24; exec \"$0\" \"$@\""]).arg(tools().get_program());
    shell.args(["proxy", "--listen", "127.0.0.1:0", "--broker"]);
    let process = Running::start(shell.arg(format!("mqtt://127.0.0.1:{}", store.port())));
    let line = process.line();
    let port = line.split(',').next().and_then(|url| url.rsplit(':').next()?.parse().ok());
    let port = port.unwrap_or_else(|| panic!("{line:?}"));
    let connections: Vec<_> =
        (0..40).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("queued")).collect();
    // "accept: Too many open files"
    while !process.complaint().contains("accept: ") {}
    let before = cpu_ticks(process.id());
    #[expect(clippy::disallowed_methods, reason = "the CPU time of one second is measured")]
    thread::sleep(Duration::from_secs(1));
    if let (Some(before), Some(after)) = (before, cpu_ticks(process.id())) {
        assert!(after - before < 30, "{} ticks of CPU time in a second", after - before);
    }
    drop(connections);
    store.client(port).set("k", "v").wait().expect("connections are accepted again");
}

#[test]
fn unread_output_does_not_block_the_proxy() {
    // More lines than a pipe of 64 KiB and the queue of the log hold.
    const CONNECTIONS: u64 = 8_000;
    let file = Scratch::new("proxy-unread.toml", "[[fault]]\nkind = \"refuse\"\n");
    let mut proxy = tools();
    proxy.args(["proxy", "--listen", "127.0.0.1:0", "--faults", file.path()]);
    let mut process = proxy.stdout(Stdio::piped()).spawn().expect("the command starts");
    let mut out = BufReader::new(process.stdout.take().expect("piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    let port = line.split(',').next().and_then(|url| url.rsplit(':').next()?.parse().ok());
    let port = port.unwrap_or_else(|| panic!("{line:?}"));
    for number in 0..CONNECTIONS {
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the proxy listens");
        stream.set_read_timeout(Some(HANGS)).expect("a timeout");
        let closed = matches!(stream.read(&mut [0]), Ok(0));
        assert!(closed, "connection {number} is not closed");
    }
    let status = Command::new("kill").arg(process.id().to_string()).status();
    assert!(status.is_ok_and(|status| status.success()));
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    assert_eq!(process.wait().expect("it exits").code(), Some(0));
    let mut lines = rest.lines().rev();
    assert_eq!(lines.next(), Some(&*format!("faults: refuse {CONNECTIONS}")));
    let dropped = lines.next().and_then(|line| line.strip_suffix(" lines were not printed"));
    let dropped: u64 = dropped.and_then(|count| count.parse().ok()).expect("a count");
    let printed = u64::try_from(lines.count()).expect("few");
    assert_eq!(printed + dropped, CONNECTIONS);
}

/// The names and meanings are those of the test broker of Azure IoT Operations.
#[test]
fn clients_request_faults_by_user_properties() {
    let store = Store::start();
    let between = Between::start(&store, "requested", "");
    let set = |value: &str| RawRequest::deployed("raw", words(&["SET", "k", value]));
    let mut raw = Raw::connect(between.port, "raw");
    let rejected = raw.put(&set("rejected").with("fault:rejectpublish", "151"));
    assert_eq!(rejected, Some(Reason::QUOTA_EXCEEDED));
    let once = set("once").with("fault:disconnect", "152").with("fault:requestid", "r");
    assert_eq!(raw.put(&once), None, "the connection ends before the request is forwarded");
    assert_eq!(raw.ended(), Some(Reason::ADMINISTRATIVE_ACTION));
    assert_eq!(between.get("k").expect("a response"), None);
    let mut again = Raw::connect(between.port, "raw");
    assert_eq!(again.answer(&once), b"+OK\r\n", "the same request passes");
    let late = set("late").with("fault:disconnect", "152").with("fault:delay", "0");
    again.send(&late);
    assert_eq!(again.ended(), Some(Reason::ADMINISTRATIVE_ACTION));
    while between.get("k").expect("a response").as_deref() != Some(&b"late"[..]) {}
    assert_eq!(between.stop(), "faults: requested-disconnect 2, requested-reject 1");
}
