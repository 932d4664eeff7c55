//! What runs the command on a machine: a file of options, and a supervisor that is told how it is.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use statestore_tests::timely::HANGS;

use crate::own_broker::Scratch;
use crate::process::{Running, run, run_with_input, statestore};

#[test]
fn a_file_says_what_options_say() {
    let file = Scratch::new("serve.toml");
    fs::write(file.path(), "listen = \"127.0.0.1:0\"\nnode-id = \"from-a-file\"\n")
        .expect("a file");
    let serve = Running::start(statestore().args(["serve", "--config", file.path()]));
    let line = serve.line();
    let url = line.split(';').next().and_then(|line| line.rsplit(' ').next()).expect("an address");
    let version = run(statestore().args(["set", "k", "v", "--broker", url])).version();
    assert!(version.ends_with(":from-a-file"), "{version}");
    // The environment counts for more.
    let mut print = statestore();
    print.env("STATESTORE_CONFIG", file.path()).env("STATESTORE_NODE_ID", "from-around");
    let printed = run(print.args(["serve", "--print-config"]));
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let has = |line: &str| printed.text().lines().any(|other| other == line);
    assert!(has("node-id = \"from-around\" # the environment"), "{printed:?}");
    assert!(has("listen = \"127.0.0.1:0\" # the file"), "{printed:?}");
    fs::write(file.path(), "listen = \"127.0.0.1:0\"\nno-such = 1\n").expect("a file");
    let told = format!("{}:2: no-such is no option of serve", file.path());
    run(statestore().args(["serve", "--config", file.path()])).fails(2, &[&told]);
}

/// The end of a supervisor.
struct Heard(UnixDatagram, Scratch);

impl Heard {
    fn new(name: &str) -> Self {
        let at = Scratch::new(name);
        let socket = UnixDatagram::bind(at.path()).expect("a socket");
        socket.set_read_timeout(Some(HANGS)).expect("a socket");
        Self(socket, at)
    }

    /// The next message with this in it.
    fn until(&self, part: &str) -> String {
        loop {
            let mut bytes = [0; 4_096];
            let len = self.0.recv(&mut bytes).expect("another message in time");
            let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
            if text.contains(part) {
                return text;
            }
        }
    }
}

#[test]
fn a_supervisor_is_told_how_it_is() {
    let (heard, users) = (Heard::new("notify"), Scratch::new("notify-users"));
    run_with_input(statestore().args(["passwd", users.path(), "ann"]), b"secret\n").is(0, "");
    let mut serve = statestore();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--password-file", users.path()]);
    let serve =
        Running::start(serve.env("NOTIFY_SOCKET", heard.1.path()).env("WATCHDOG_USEC", "100000"));
    let ready = heard.until("READY=1");
    assert!(ready.contains("STATUS=statestore: ready on mqtt://127.0.0.1:"), "{ready}");
    heard.until("WATCHDOG=1");
    heard.until("WATCHDOG=1");
    serve.signal("-HUP");
    let reloading = heard.until("RELOADING=1");
    assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
    heard.until("READY=1");
    serve.signal("-TERM");
    heard.until("STOPPING=1");
    assert_eq!(serve.end().code, Some(0));
}

/// A supervisor that reads nothing, or is not there, is none of the store's business; nor is a watchdog of another process.
#[test]
fn a_supervisor_that_does_not_listen_stops_nothing() {
    let heard = Heard::new("deaf");
    for socket in [heard.1.path(), "/no/such/socket", "@no-such-socket", "", "@"] {
        let mut serve = statestore();
        serve.args(["serve", "--listen", "127.0.0.1:0"]).env("NOTIFY_SOCKET", socket);
        // So often that a socket which nobody reads is full at once.
        let serve = Running::start(serve.env("WATCHDOG_USEC", "1"));
        let line = serve.line();
        let url = line.split(';').next().and_then(|line| line.rsplit(' ').next());
        run(statestore().args(["set", "k", "v", "--broker", url.expect("an address")])).version();
        serve.signal("-TERM");
        assert_eq!(serve.end().code, Some(0), "{socket}");
    }
    let mut serve = statestore();
    serve.args(["serve", "--listen", "127.0.0.1:0"]).env("NOTIFY_SOCKET", heard.1.path());
    let heard = Heard::new("other");
    serve.env("NOTIFY_SOCKET", heard.1.path()).env("WATCHDOG_USEC", "1").env("WATCHDOG_PID", "1");
    let serve = Running::start(&mut serve);
    heard.until("READY=1");
    serve.signal("-TERM");
    assert!(!heard.until("STOPPING=1").contains("WATCHDOG"));
    serve.end();
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

#[test]
fn the_file_beside_the_unit_is_one() {
    let file = folder().join("systemd/statestore.toml");
    let mut print = statestore();
    print.args(["serve", "--print-config", "--config"]).arg(&file);
    let printed = run(&mut print);
    assert!(printed.text().contains("listen = \"127.0.0.1:1883\" # the file"), "{printed:?}");
    // And with what it has off.
    let on = fs::read_to_string(&file).expect("it is there");
    let on: Vec<&str> = on
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|line| line.contains(" = ")).unwrap_or(line))
        .filter(|line| !line.contains("127.0.0.1"))
        .collect();
    let all = Scratch::new("unit.toml");
    fs::write(all.path(), on.join("\n") + "\ndata = \"/d\"\n").expect("a file");
    let printed = run(statestore().args(["serve", "--print-config", "--config", all.path()]));
    assert!(printed.text().contains("durable = \"all\" # the file"), "{printed:?}");
}

#[test]
fn the_unit_is_one_that_systemd_takes() {
    let unit =
        fs::read_to_string(folder().join("systemd/statestore.service")).expect("it is there");
    // Its words, where there is no systemd to ask: what is started takes these options.
    let starts = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/statestore "));
    let starts = starts.expect("it starts something").replace("${STATE_DIRECTORY}", "/var/lib/x");
    let file = folder().join("systemd/statestore.toml");
    let starts = starts.replace("/etc/statestore/statestore.toml", file.to_str().expect("text"));
    let mut print = statestore();
    print.args(starts.split(' ')).arg("--print-config");
    assert!(run(&mut print).text().contains("data = \"/var/lib/x\" # the command line"));
    let here = Scratch::new("statestore.service");
    let own = env!("CARGO_BIN_EXE_statestore");
    fs::write(here.path(), unit.replace("/usr/bin/statestore", own)).expect("a file");
    let verify = Command::new("systemd-analyze").args(["verify", "--man=no", here.path()]).output();
    let Ok(verify) = verify else {
        println!("the unit: not shown to systemd, there is no systemd-analyze here");
        return;
    };
    let said = String::from_utf8_lossy(&verify.stderr).into_owned();
    // Other units of the machine are its own business.
    let about: Vec<&str> = said.lines().filter(|line| line.contains("statestore")).collect();
    assert!(about.is_empty(), "{about:?}");
}

/// What a package or an image is made of is there.
#[test]
fn what_is_packed_is_there() {
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).expect("it is there");
    let (_, assets) = manifest.split_once("\nassets = [").expect("a list");
    let (assets, _) = assets.split_once("\n]").expect("its end");
    let mut files =
        assets.lines().filter_map(|line| line.trim().strip_prefix("[\"")?.split('"').next());
    assert!(files.clone().count() >= 4, "{assets}");
    assert!(
        files.all(|file| file.starts_with("target/") || folder().join(file).exists()),
        "{assets}"
    );
    let image = fs::read_to_string(folder().join("container/Containerfile")).expect("it is there");
    let run_by = image.lines().find_map(|line| line.strip_prefix("ENTRYPOINT ")).expect("it runs");
    let words: Vec<String> = serde_json::from_str(run_by).expect("a list");
    let set = image.lines().find_map(|line| line.strip_prefix("ENV ")).expect("variables");
    let mut print = statestore();
    print.args(&words[1..]).arg("--print-config");
    let printed = run(print.envs(set.split(' ').filter_map(|variable| variable.split_once('='))));
    assert!(printed.text().contains("listen = \"0.0.0.0:1883\" # the environment"), "{printed:?}");
    let health = image.lines().find_map(|line| line.split_once(" CMD ")).expect("a check").1;
    let words: Vec<String> = serde_json::from_str(health).expect("a list");
    let [program, verb, option, url] = &words[..] else { panic!("{words:?}") };
    assert_eq!([&**program, verb, option], ["/usr/bin/statestore", "ready", "--metrics"]);
    // It asks where the store of the image answers.
    let address = url.strip_prefix("http://").expect(url);
    let line = format!("metrics = \"{address}\" # the environment");
    assert!(printed.text().contains(&line), "{printed:?}");
}

#[test]
fn a_run_is_drawn_into_a_file() {
    let own = crate::own_broker::Own::start(&[]);
    let file = Scratch::new("plot.svg");
    let drawn =
        run(&mut own.command("mqtt", &["bench", "--requests", "200", "--plot", file.path()]));
    assert_eq!(drawn.code, Some(0), "{drawn:?}");
    let svg = fs::read_to_string(file.path()).expect("a drawing");
    assert!(svg.contains("200 requests, half SET and half GET, 64 in flight"), "{svg}");
    assert!(svg.ends_with("</svg>\n"));
    let nowhere = run(&mut own.command("mqtt", &["bench", "--plot", "/no/such/folder/a.svg"]));
    nowhere.fails(2, &["--plot: No such file"]);
}
