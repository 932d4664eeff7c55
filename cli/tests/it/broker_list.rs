//! Several brokers on one command line.

use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::brokers::scripted::Scripted;
use statestore_testkit::credentials::Certificates;
use statestore_testkit::links::failover::redirect;
use statestore_testkit::process::timely;

use crate::deployment::{Mode, in_each_mode, test_name};
use crate::process::{Running, run, statestore};

in_each_mode!(reachable_broker_of_a_list_is_used);

/// An address without a listener.
const GONE: &str = "mqtt://127.0.0.1:1";

fn reachable_broker_of_a_list_is_used(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let url = here.url();
    here.run(&["set", "k", "v"]).version();
    let listed = format!("{GONE},{url}");
    run(&mut here.command(&["get", "k", "--broker", &listed])).is(0, "v");
    run(&mut here.command(&["get", "k", "--broker", GONE, "--broker", &url])).is(0, "v");
    run(here.command(&["get", "k"]).env("STATESTORE_BROKER", &listed)).is(0, "v");
    let verify = run(&mut here.command(&["verify", "--rule", "value/vdel", "--broker", &listed]));
    assert_eq!((verify.code, &*verify.err), (Some(0), ""));
    let dump = run(&mut here.command(&["data", "dump", "--broker", &listed]));
    assert!(dump.text().contains("\"key\":\"k\""), "{dump:?}");
}

#[test]
fn unreachable_brokers_are_each_named_with_the_reason() {
    for line in ["get k", "watch k", "serve"] {
        let mut command = statestore();
        command.args(line.split(' ')).args(["--broker", GONE, "--broker", "mqtt://127.0.0.1:2"]);
        if line == "serve" {
            // The command retries without a limit.
            let serve = Running::start(&mut command);
            while !serve.complaint().contains("not connected to any of 2 brokers yet (all 2 ") {}
            continue;
        }
        let ended = run(command.args(["--timeout", "2s"]));
        ended.fails(3, &["all 2 addresses failed: 127.0.0.1:1: ", "; 127.0.0.1:2: ", "--broker"]);
        // After a second, a notice contains the reasons too.
        let last = ended.err.lines().last().expect("a reason");
        assert_eq!(last.matches("refused").count(), 2, "{ended:?}");
    }
    let mut verify = statestore();
    verify.args(["verify", "--broker", &format!("{GONE},mqtt://127.0.0.1:2")]);
    run(&mut verify).fails(3, &["any of 2 brokers", "127.0.0.1:1: ", "127.0.0.1:2: ", "--broker"]);
}

#[test]
fn invalid_broker_list_is_bad_input() {
    let many = vec!["mqtt://h"; 17].join(",");
    for (brokers, advice) in [
        ("mqtt://h,mqtts://h", "mqtts://"),
        ("mqtt://h,", "mqtt://HOST:PORT"),
        ("mqtt://h,mqtt://u:p@h", "user"),
        (&*many, "16"),
    ] {
        for verb in [&["get", "k"][..], &["serve"], &["verify"]] {
            let mut command = statestore();
            run(command.args(verb).args(["--broker", brokers])).fails(2, &[advice]);
        }
    }
}

/// A standby broker redirects a client to a server that is not configured.
#[tokio::test]
async fn standby_broker_is_skipped() {
    timely(async {
        let (standby, leader) = (Scripted::start().await, Scripted::start().await);
        let brokers =
            format!("mqtt://127.0.0.1:{},mqtt://127.0.0.1:{}", standby.port(), leader.port());
        let get = move || run(statestore().args(["get", "k", "--broker", &brokers]));
        let get = tokio::task::spawn_blocking(get);
        redirect(&standby).await;
        leader.welcome(Default::default()).await.serve().await;
        get.await.expect("it ends").is(1, "");
    })
    .await;
}

/// The broker of a store dies. The store and its clients fail over to the second broker.
#[test]
fn store_fails_over_to_the_second_broker() {
    let Some(mut first) = Mosquitto::start(&test_name()) else { return };
    let Some(second) = Mosquitto::start(&test_name()) else { return };
    let url = |broker: &Mosquitto| format!("mqtt://127.0.0.1:{}", broker.port());
    let brokers = format!("{GONE},{},{}", url(&first), url(&second));
    let set = || run(statestore().args(["set", "k", "v", "--broker", &brokers, "--timeout", "1s"]));
    let mut serve = Running::start(statestore().args(["serve", "--broker", &brokers]));
    let line = serve.line();
    assert!(
        line.starts_with(&format!("statestore: ready on {}; as client ", url(&first))),
        "{line}"
    );
    set().version();
    first.kill();
    // The store needs a moment to reconnect.
    let answered = (0..2_000).map(|_| set()).find(|ended| ended.code == Some(0));
    answered.expect("the store is there").version();
    assert!(serve.runs());
}

#[test]
fn tls_error_is_final_only_if_all_brokers_cause_it() {
    let Some(made) = Certificates::make(&test_name()) else { return };
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let serve = |options: &[&str]| {
        let listen =
            if options.contains(&"--listen-tls-cert") { "--listen-tls" } else { "--listen" };
        let serve =
            Running::start(statestore().args(["serve", listen, "127.0.0.1:0"]).args(options));
        let line = serve.line();
        let port =
            line.split(';').next().and_then(|url| url.rsplit(':').next()?.parse::<u16>().ok());
        (serve, port.unwrap_or_else(|| panic!("{line:?}")))
    };
    let (_plain, plain) = serve(&[]);
    let (_tls, tls) =
        serve(&["--listen-tls-cert", &path("broker.pem"), "--listen-tls-key", &path("broker.key")]);
    let get = |brokers: String| {
        let mut command = statestore();
        command.args(["get", "k", "--timeout", "1h", "--broker", &brokers]);
        run(command.args(["--tls-ca", &path("ca.pem")]))
    };
    let [not_tls, other_name, good] =
        [("localhost", plain), ("127.0.0.1", tls), ("localhost", tls)]
            .map(|(host, port)| format!("mqtts://{host}:{port}"));
    get(format!("{not_tls},{other_name},{good}")).is(1, "");
    // The error of each broker contains its own host name.
    let ended = get(format!("{not_tls},{other_name}"));
    let reasons = ["speaks MQTT without TLS on this port", "is for localhost, not for 127.0.0.1"];
    ended.fails(3, &reasons);
}
