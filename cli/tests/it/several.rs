//! Several brokers on one command line.

use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::brokers::scripted::Scripted;
use statestore_testkit::credentials::Certificates;
use statestore_testkit::links::failover::send_elsewhere;
use statestore_testkit::process::timely;

use crate::place::{Form, everywhere, test_name};
use crate::process::{Running, run, statestore};

everywhere!(the_one_that_answers_is_found);

/// Nobody listens there.
const GONE: &str = "mqtt://127.0.0.1:1";

fn the_one_that_answers_is_found(form: Form) {
    let Some(here) = form.start(&[]) else { return };
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
fn when_none_answers_each_is_named_with_its_reason() {
    for line in ["get k", "watch k", "serve"] {
        let mut command = statestore();
        command.args(line.split(' ')).args(["--broker", GONE, "--broker", "mqtt://127.0.0.1:2"]);
        if line == "serve" {
            // It tries for ever.
            let serve = Running::start(&mut command);
            while !serve.complaint().contains("not connected to any of 2 brokers yet (all 2 ") {}
            continue;
        }
        let ended = run(command.args(["--timeout", "300ms"]));
        ended.fails(3, &["all 2 addresses failed: 127.0.0.1:1: ", "; 127.0.0.1:2: ", "--broker"]);
        assert_eq!(ended.err.matches("refused").count(), 2, "{ended:?}");
    }
    let mut verify = statestore();
    verify.args(["verify", "--broker", &format!("{GONE},mqtt://127.0.0.1:2")]);
    run(&mut verify).fails(3, &["any of 2 brokers", "127.0.0.1:1: ", "127.0.0.1:2: ", "--broker"]);
}

#[test]
fn what_cannot_be_several_brokers_is_bad_input() {
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

/// A broker that stands by sends a client elsewhere, and names a server that nobody has configured.
#[tokio::test]
async fn a_broker_that_stands_by_is_passed_over() {
    timely(async {
        let (standby, leader) = (Scripted::start().await, Scripted::start().await);
        let brokers =
            format!("mqtt://127.0.0.1:{},mqtt://127.0.0.1:{}", standby.port(), leader.port());
        let get = move || run(statestore().args(["get", "k", "--broker", &brokers]));
        let get = tokio::task::spawn_blocking(get);
        send_elsewhere(&standby).await;
        leader.welcome(Default::default()).await.serve().await;
        get.await.expect("it ends").is(1, "");
    })
    .await;
}

/// A store beside the first of two brokers goes to the second one when that dies, and so do its clients.
#[test]
fn a_store_beside_several_brokers_moves_over() {
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
    // The store needs a moment.
    let answered = (0..20).map(|_| set()).find(|ended| ended.code == Some(0));
    answered.expect("the store is there").version();
    assert!(serve.runs());
}

#[test]
fn tls_that_cannot_be_is_the_end_only_where_it_is_at_all_of_them() {
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
    // The name is that of the address, not that of the first one.
    let ended = get(format!("{not_tls},{other_name}"));
    let reasons = ["speaks MQTT without TLS on this port", "is for localhost, not for 127.0.0.1"];
    ended.fails(3, &reasons);
}
