//! `serve` with an embedded broker: authentication, TLS and limits of connections.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use statestore_testkit::credentials::Certificates;
use statestore_testkit::wire::packets::Reason;
use statestore_testkit::wire::raw::Raw;

use crate::process::{Running, run, run_with_input, statestore};

/// A store with an embedded broker on a free port.
pub(crate) struct EmbeddedStore {
    pub(crate) port: u16,
    pub(crate) store: Running,
}

impl EmbeddedStore {
    pub(crate) fn start(options: &[&str]) -> Self {
        let listen =
            if options.contains(&"--listen-tls-cert") { "--listen-tls" } else { "--listen" };
        let store =
            Running::start(statestore().args(["serve", listen, "127.0.0.1:0"]).args(options));
        let line = store.line();
        let port = line.split(';').next().and_then(|url| url.rsplit(':').next());
        let port = port.and_then(|port| port.parse().ok());
        Self { port: port.unwrap_or_else(|| panic!("{line:?}")), store }
    }

    /// Returns a command with the address of this store.
    pub(crate) fn command(&self, scheme: &str, arguments: &[&str]) -> Command {
        let mut command = statestore();
        command.args(arguments).args(["--timeout", "20s", "--broker"]);
        command.arg(format!("{scheme}://localhost:{}", self.port));
        command
    }
}

/// A path of one test, also of one mode of it. Dropping it removes the file or directory.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("statestore-cli-{}-{number}-{name}", std::process::id());
        let new = Self(std::env::temp_dir().join(name));
        // A killed process with this id may have left it.
        new.remove();
        new
    }

    fn remove(&self) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_dir_all(&self.0);
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}

#[test]
fn users_log_in_with_their_passwords() {
    let file = Scratch::new("users");
    let passwd = |user: &str, password: &str| {
        run_with_input(statestore().args(["passwd", file.path(), user]), password.as_bytes())
    };
    passwd("alice", "wrong\n").is(0, "");
    passwd("bob", "two\n").is(0, "");
    passwd("alice", "one\n").is(0, "");
    passwd("carol", "").fails(2, &["no password", "standard input"]);
    let text = fs::read_to_string(file.path()).expect("the file");
    assert_eq!(text.lines().count(), 2, "one line for each user");
    assert!(!text.contains("one") && !text.contains("two"), "no password stands there");

    let server = EmbeddedStore::start(&["--password-file", file.path()]);
    let set = |login: &[&str]| run(server.command("mqtt", &["set", "k", "v"]).args(login));
    set(&["--user", "alice", "--password", "one"]).version();
    set(&["--user", "bob", "--password", "two"]).version();
    for login in [&["--user", "alice", "--password", "wrong"][..], &["--user", "carol"], &[]] {
        set(login).fails(2, &["refused", "--user", "STATESTORE_PASSWORD"]);
    }
    let broken = Scratch::new("broken");
    fs::write(&broken.0, "no line of a password file\n").expect("a file");
    let serve = |path: &str| run(statestore().args(["serve", "--password-file", path]));
    serve(broken.path()).fails(2, &[broken.path()]);
    serve("/no/such/file").fails(2, &["/no/such/file"]);
}

#[test]
fn exposed_passwords_and_writable_files_are_reported() {
    let users = Scratch::new("exposed");
    let passwd = ["passwd", users.path(), "ann"];
    run_with_input(statestore().args(passwd), b"one\n").is(0, "");
    fs::set_permissions(users.path(), Permissions::from_mode(0o666)).expect("own file");
    let listen = ["serve", "--allow-anonymous", "--listen", "0.0.0.0:0", "--listen", "127.0.0.1:0"];
    let store = Running::start(statestore().args(listen).args(["--password-file", users.path()]));
    store.line();
    store.signal("-TERM");
    let ended = store.end();
    let exposed = ended.err.lines().filter(|line| line.contains("without TLS: use listen-tls"));
    assert_eq!(exposed.count(), 1, "{}", ended.err);
    assert!(
        ended.err.contains("every user of this machine can read it (mode 0666)"),
        "{}",
        ended.err
    );

    let get = |url: &str| {
        let mut get = statestore();
        get.args(["get", "k", "--timeout", "50ms", "--user", "ann", "--broker", url]);
        run(get.env("STATESTORE_PASSWORD", "one")).err
    };
    assert!(get("mqtt://192.0.2.1").contains("without TLS: use mqtts"));
    assert!(!get("mqtt://127.0.0.1:1").contains("without TLS"));
}

#[test]
fn web_pages_have_a_separate_port() {
    let free = ["serve", "--listen", "127.0.0.1:0", "--listen-websocket", "127.0.0.1:0"];
    let store = Running::start(statestore().args(free));
    let line = store.line();
    let address = line.split(" and ws://").nth(1).and_then(|rest| rest.split(';').next());
    let address = address.unwrap_or_else(|| panic!("{line:?}"));
    let mut stream = TcpStream::connect(address).expect("it listens there");
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 426 ") && answer.contains("MQTT 5"), "{answer}");
    let serve = |options: &[&str]| run(statestore().arg("serve").args(options));
    serve(&["--listen", "127.0.0.1:0", "--listen-websocket", address])
        .fails(3, &[address, "in use"]);
    serve(&["--websocket-origin", "https://panel.example"])
        .fails(2, &["--websocket-origin: it requires listen-websocket"]);
    let page = ["--listen-websocket", "127.0.0.1:0", "--websocket-origin", "panel.example/"];
    serve(&page).fails(2, &["--websocket-origin", "https://panel.example"]);
}

#[test]
fn users_are_reloaded_while_the_store_runs() {
    let file = Scratch::new("changing");
    let passwd = |user: &str| {
        run_with_input(statestore().args(["passwd", file.path(), user]), b"secret\n").is(0, "");
    };
    passwd("alice");
    let server = EmbeddedStore::start(&["--password-file", file.path()]);
    let get = |user: &str| {
        run(&mut server.command("mqtt", &["get", "k", "--user", user, "--password", "secret"])).code
    };
    let again = || {
        server.store.signal("-HUP");
        loop {
            let line = server.store.complaint();
            if line.contains(file.path()) {
                return line;
            }
        }
    };
    passwd("bob");
    assert_eq!(get("bob"), Some(2), "not before the reload");
    assert!(again().contains("2 users from now on"));
    assert_eq!(get("bob"), Some(1));
    // Invalid files change nothing.
    for (broken, why) in [("alice:secret\n", "line 1 is not NAME:HASH"), ("", "no user")] {
        fs::write(&file.0, broken).expect("a file");
        let message = again();
        assert!(message.contains(why) && message.contains("nothing has changed"), "{message}");
    }
    fs::remove_file(&file.0).expect("it is ours");
    assert!(again().contains("No such file"));
    assert_eq!(get("alice"), Some(1));
}

#[test]
fn users_that_are_added_concurrently_are_all_present() {
    let file = Scratch::new("at-once");
    let names: Vec<String> = (0..8).map(|number| format!("user{number}")).collect();
    std::thread::scope(|scope| {
        for name in &names {
            let path = file.path();
            scope.spawn(move || {
                run_with_input(statestore().args(["passwd", path, name]), b"one\n").is(0, "");
            });
        }
    });
    let text = fs::read_to_string(file.path()).expect("the file");
    for name in &names {
        assert!(text.contains(&format!("{name}:")), "{name}: {text}");
    }
}

#[test]
fn password_file_keeps_its_owner() {
    let (file, link) = (Scratch::new("kept"), Scratch::new("link"));
    let passwd =
        |path: &str| run_with_input(statestore().args(["passwd", path, "alice"]), b"one\n");
    passwd(file.path()).is(0, "");
    let seen = || {
        let metadata = fs::metadata(&file.0).expect("it is there");
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o777)
    };
    let (uid, gid, mode) = seen();
    assert_eq!(mode, 0o600, "for its owner only");
    fs::set_permissions(&file.0, Permissions::from_mode(0o640)).expect("it is ours");
    // Only root can change the owner.
    let given =
        chown(&file.0, Some(uid + 1), Some(gid + 1)).map_or((uid, gid), |()| (uid + 1, gid + 1));
    passwd(file.path()).is(0, "");
    assert_eq!(seen(), (given.0, given.1, 0o640));
    let text = fs::read_to_string(&file.0).expect("the file");
    symlink(&file.0, &link.0).expect("a link");
    passwd(link.path()).fails(2, &[link.path(), "name the file itself"]);
    assert_eq!(fs::read_to_string(&file.0).expect("the file"), text);
    assert!(fs::symlink_metadata(&link.0).expect("it is there").is_symlink());
}

#[test]
fn serve_ignores_variables_of_client_commands() {
    let mut serve = statestore();
    serve.args(["serve", "--listen", "127.0.0.1:0"]);
    serve.env("STATESTORE_PASSWORD", "secret").env("STATESTORE_TLS_CERT", "/no/such/file");
    serve.env("STATESTORE_BROKER", "mqtt://127.0.0.1:1");
    let store = Running::start(serve.stdin(Stdio::null()));
    assert!(store.line().starts_with("statestore: ready"));
    store.signal("-TERM");
    store.end().is(0, "");
    let client = run(statestore().args(["get", "k"]).env("STATESTORE_PASSWORD", "secret"));
    client.fails(2, &["--user"]);
}

#[test]
fn invalid_tls_files_are_named_with_a_remedy() {
    let Some(made) = Certificates::make("files_of_no_use") else { return };
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let (cert, key) = (path("broker.pem"), path("broker.key"));
    let locked = Scratch::new("locked");
    let pem = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    fs::write(&locked.0, pem).expect("a file");
    for (cert, key, wrong, word) in [
        (&*cert, locked.path(), locked.path(), "openssl pkey"),
        (&*cert, &*cert, &*cert, "not a private key"),
        (&*key, &*key, &*key, "not a certificate"),
    ] {
        let options =
            ["--listen-tls", "127.0.0.1:0", "--listen-tls-cert", cert, "--listen-tls-key", key];
        let ended = run(statestore().arg("serve").args(options));
        ended.fails(2, &[wrong, word]);
    }
    let mut client = statestore();
    client.args([
        "get",
        "k",
        "--broker",
        "mqtts://localhost:1",
        "--tls-ca",
        &cert,
        "--tls-cert",
        &cert,
    ]);
    run(client.args(["--tls-key", locked.path()])).fails(2, &[locked.path(), "openssl pkey"]);
}

#[test]
fn tls_verifies_both_sides() {
    let Some(made) = Certificates::make("tls_asks_both_sides") else { return };
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let (ca, cert, key) = (path("ca.pem"), path("broker.pem"), path("broker.key"));
    let options =
        ["--listen-tls-cert", &cert, "--listen-tls-key", &key, "--listen-tls-client-ca", &ca];
    let server = EmbeddedStore::start(&options);
    let (cert, key) = (path("client.pem"), path("client.key"));
    let known = ["set", "k", "v", "--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
    run(&mut server.command("mqtts", &known)).version();
    made.encrypt_key("client", "-v2 aes-256-cbc");
    let (encrypted, password) = (path("client.encrypted.key"), path("client.password"));
    let mut encrypted =
        ["get", "k", "--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &encrypted].to_vec();
    encrypted.extend(["--tls-key-password-file", &password]);
    run(&mut server.command("mqtts", &encrypted)).is(0, "v");
    *encrypted.last_mut().expect("an argument") = &ca;
    run(&mut server.command("mqtts", &encrypted))
        .fails(2, &["--tls-key", &ca, "does not decrypt the key"]);
    let short = ["get", "k", "--timeout", "400ms"];
    let mut anonymous = statestore();
    anonymous.args(short).args(["--tls-ca", &ca, "--broker"]);
    anonymous.arg(format!("mqtts://localhost:{}", server.port));
    assert_eq!(run(&mut anonymous).code, Some(3), "without a certificate");
    let mut plain = statestore();
    plain.args(short).args(["--broker", &format!("mqtt://localhost:{}", server.port)]);
    assert_eq!(run(&mut plain).code, Some(3), "without TLS");
    let ended = run(statestore().args([
        "serve",
        "--listen-tls",
        "127.0.0.1:0",
        "--listen-tls-cert",
        &cert,
    ]));
    ended.fails(2, &["--listen-tls-cert: it requires listen-tls-key"]);
}

#[test]
fn used_port_and_contradictory_options_are_reported() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let serve =
        |options: &[&str]| run(statestore().arg("serve").args(options).stdin(Stdio::null()));
    serve(&["--listen", &address]).fails(3, &[&address, "in use"]);
    let metrics = ["--listen", "127.0.0.1:0", "--metrics-listen", &address];
    serve(&metrics).fails(3, &["metrics-listen", &address, "in use"]);
    // The address belongs to another machine, and this machine may get it later.
    serve(&["--allow-anonymous", "--listen", "192.0.2.1:1883"]).fails(3, &["192.0.2.1:1883"]);
    serve(&["--listen", "nowhere"]).fails(2, &["127.0.0.1:1883"]);
    let both = ["--listen", "127.0.0.1:0", "--broker", "mqtt://127.0.0.1:1"];
    serve(&both).fails(2, &["--listen", "leave out broker"]);
}

#[test]
fn connections_above_the_limit_are_rejected() {
    let server = EmbeddedStore::start(&["--max-connections", "1"]);
    let watch = Running::start(&mut server.command("mqtt", &["watch", "k"]));
    assert_eq!(watch.complaint(), "absent");
    let mut second = statestore();
    second.args(["get", "k", "--timeout", "400ms", "--broker"]);
    second.arg(format!("mqtt://localhost:{}", server.port));
    assert_eq!(run(&mut second).code, Some(3), "one too many");
    watch.kill();
    run(&mut server.command("mqtt", &["get", "k"])).is(1, "");
}

/// A client that exceeds its memory limit is disconnected, and the store continues.
#[test]
fn client_above_its_memory_limit_is_disconnected() {
    let server =
        EmbeddedStore::start(&["--max-client-memory", "65536", "--max-broker-memory", "1048576"]);
    let mut deaf = Raw::connect(server.port, "deaf");
    assert_eq!(deaf.command(&["KEYNOTIFY", "k"]), b"+OK\r\n");
    let value = "v".repeat(60_000);
    let mut writer = Raw::connect(server.port, "writer");
    for _ in 0..300 {
        assert_eq!(writer.command(&["SET", "k", &value]), b"+OK\r\n");
    }
    assert_eq!(deaf.ended(), Some(Reason::QUOTA_EXCEEDED));
}
