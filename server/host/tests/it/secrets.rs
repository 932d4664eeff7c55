//! Errors of files, and `Debug` output, contain no secret.

use std::error::Error;
use std::str::FromStr as _;

use statestore_client::Options as ClientOptions;
use statestore_server::config::Config;
use statestore_server::http::TrafficTable;
use statestore_server::policy::{Cases, CertificateAttributes, Policy, Subject};
use statestore_server::{
    PatternEvent, Proxy, ReloadFile, ServerTls, ServiceAccountKeys, Tls, TlsPem, Users, tls_config,
};
use statestore_testkit::credentials::canary::{
    CANARY, assert_debug_has_no_canary, assert_error_has_no_canary, files_with_canary,
};

type Failed = Box<dyn Error + Send + Sync>;

/// Checks the error of each variant of a file, if the variant is invalid.
#[track_caller]
fn check_all<T>(text: &str, parse: impl Fn(&str) -> Result<T, Failed>) {
    let mut errors = 0;
    for file in files_with_canary(text) {
        if let Err(error) = parse(&file) {
            errors += 1;
            assert_error_has_no_canary(&*error);
        }
    }
    assert!(errors > 5, "only {errors} variants are invalid");
}

const CONFIGURATION: &str = "\
[listen]
listen = [\"127.0.0.1:1883\"]
websocket-origin = [\"https://panel.example\"]
[store]
node-id = \"n\"
[limits]
max-keys = 7
max-clock-drift = \"5s\"
[storage]
durable = \"all\"
[http]
metrics-listen = \"127.0.0.1:9464\"
http-allowed-hosts = [\"store.example\"]
traffic = true
[broker]
broker = [\"mqtt://hub.example\"]
proxy = \"http://proxy.example\"
user = \"ann\"
password = \"ann\"
[etcd]
etcd = [\"http://etcd.example:2379\"]
etcd-user = \"root\"
etcd-password = \"root\"
etcd-lease = \"5s\"
";

#[test]
fn error_of_a_configuration_contains_no_value() {
    check_all(CONFIGURATION, |text| {
        let config = Config::from_toml(text)?;
        config.check()?;
        Ok(config)
    });
}

#[test]
fn error_of_a_login_or_policy_file_contains_no_value() {
    let hash = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo";
    let users = format!("alice:{hash}\nbob:{hash}\n");
    check_all(&users, |text| Ok(Users::from_str(text)?));
    let keys = "{\n\"keys\":\n[\n{\n\"kty\": \"EC\",\n\"crv\": \"P-256\",\n\"x\": \"AA\",\n\"d\": \"AA\"\n}\n]\n}";
    check_all(keys, |text| Ok(ServiceAccountKeys::parse(text)?));
    let policy = "\
apiVersion: v1
kind: BrokerAuthorization
spec:
  authorizationPolicies:
    rules:
      - principals:
          usernames: ['ann']
          attributes:
            - group: 'sensors'
        brokerResources:
          - method: Connect
            clientIds: ['{principal.username}*']
          - method: Publish
            topics: ['a/{principal.clientId}/#']
        stateStoreResources:
          - method: ReadWrite
            keyType: Binary
            keys: ['QUJD']
";
    check_all(policy, |text| Ok(Policy::parse(text)?));
    let attributes = "\
authorizationAttributes:
  root:
    subject: CN = Contoso Root CA
    attributes:
      organization: contoso
";
    check_all(attributes, |text| Ok(CertificateAttributes::parse(text)?));
    let cases = "allow id=lamp user=ann GET readings/ann\ndeny id=lamp CONNECT\n";
    check_all(cases, |text| Ok(Cases::parse(text)?));
    let traffic =
        "{\n\"clients\": [\n{\n\"client\": \"a\",\n\"verified\": true\n}\n],\n\"keys\": []\n}";
    check_all(traffic, |text| TrafficTable::decode(text).map_err(Into::into));
    assert!(Subject::parse(CANARY).is_err_and(|error| !error.to_string().contains(CANARY)));
}

fn pem(label: &str, content: &str) -> String {
    format!("-----BEGIN {label}-----\n{content}\n-----END {label}-----\n")
}

#[test]
fn error_of_a_pem_file_contains_nothing_of_it() {
    let good = [
        pem("CERTIFICATE", "AAAA"),
        pem("PRIVATE KEY", "AAAA"),
        pem("X509 CRL", "AAAA"),
        pem("EC PRIVATE KEY", "AAAA"),
        pem("ENCRYPTED PRIVATE KEY", "AAAA"),
    ];
    for file in &good {
        let tls = |chain: &str, key: &str, ca: &str, list: &str| {
            let pem = TlsPem::new(chain, key).client_ca(ca).revocation_list(list);
            Ok(ServerTls::from_pem(&pem)?)
        };
        check_all(file, |text| tls(text, &good[1], &good[0], &good[2]));
        check_all(file, |text| tls(&good[0], text, &good[0], &good[2]));
        check_all(file, |text| tls(&good[0], &good[1], text, &good[2]));
        check_all(file, |text| tls(&good[0], &good[1], &good[0], text));
    }
}

#[test]
fn error_of_the_tls_files_of_a_client_contains_nothing_of_them() {
    let folder = std::env::temp_dir().join(format!("statestore-secrets-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a directory");
    let path = |name: &str| folder.join(name);
    for label in ["CERTIFICATE", "PRIVATE KEY", "ENCRYPTED PRIVATE KEY"] {
        check_all(&pem(label, "AAAA"), |text| {
            std::fs::write(path("file"), text)?;
            std::fs::write(path("password"), CANARY)?;
            let identity = Tls::default().identity(path("file"), path("file"));
            for tls in [
                Tls::default().ca_file(path("file")),
                identity.clone(),
                identity.key_password_file(path("password")),
            ] {
                if let Err(error) = tls_config(&tls) {
                    assert_error_has_no_canary(&error);
                }
            }
            Ok(tls_config(&Tls::default().ca_file(path("file")))?)
        });
    }
    std::fs::remove_dir_all(&folder).expect("it exists");
}

/// A mistake in a URL turns any part of it into a password.
#[test]
fn error_of_a_url_contains_no_part_of_it() {
    for scheme in ["mqtt://", "mqtts://", "ws://", "wss://", "http://", "https://", "unix://", ""] {
        for url in [
            "me:CANARY@h:x",
            "me:CANARY",
            "CANARY:x",
            "CANARY@",
            "CANARY/@h",
            "h/CANARY",
            "h?CANARY",
            "h?CANARY=1",
            "h?client_id=%zzCANARY",
            "h:CANARY",
            "[CANARY",
            "%zzCANARY",
            "a:%zzCANARY@h",
            "a,CANARY:x",
            "",
        ] {
            let url = format!("{scheme}{}", url.replace("CANARY", CANARY));
            let check = |error: &(dyn Error + 'static)| assert_error_has_no_canary(error);
            ClientOptions::from_url(&url).err().iter().for_each(|error| check(error));
            Proxy::from_url(&url).err().iter().for_each(|error| check(error));
            for (section, setting) in
                [("broker", "broker"), ("etcd", "etcd"), ("listen", "websocket-origin")]
            {
                let text = format!("[{section}]\n{setting} = [{url:?}]\n");
                let config = Config::from_toml(&text).expect("TOML");
                config.check().err().iter().for_each(|error| check(error));
            }
        }
    }
}

#[test]
fn debug_output_contains_no_secret() {
    let text = CONFIGURATION
        .replace("\"ann\"", &format!("{CANARY:?}"))
        .replace("user = \"HunterTwoCanary9\"", "user = \"ann\"")
        .replace("\"root\"", &format!("{CANARY:?}"))
        .replace("etcd-user = \"HunterTwoCanary9\"", "etcd-user = \"root\"")
        .replace("proxy.example", &format!("me:{CANARY}@proxy.example"))
        .replace("hub.example", &format!("me:{CANARY}@hub.example"))
        .replace("etcd.example", &format!("me:{CANARY}@etcd.example"));
    assert!(text.matches(CANARY).count() == 5, "{text}");
    let config = Config::from_toml(&text).expect("valid TOML");
    assert_debug_has_no_canary(&config);
    assert_debug_has_no_canary(&config.broker);
    assert_debug_has_no_canary(&config.etcd);
    assert_debug_has_no_canary(&config.check());

    let path = std::env::temp_dir().join(format!("statestore-secret-{}", std::process::id()));
    std::fs::write(&path, CANARY).expect("a file");
    let contents = ReloadFile::new(&path, 1_000).read().expect("it exists");
    std::fs::remove_file(&path).expect("it exists");
    assert_eq!(contents.bytes, CANARY.as_bytes());
    assert_debug_has_no_canary(&contents);
    assert_debug_has_no_canary(&TlsPem::new(CANARY, CANARY).client_ca(CANARY));
    assert_debug_has_no_canary(&Proxy::new("h", 1).credentials(CANARY, CANARY));
    let options = ClientOptions::new("c", "h", 1).credentials(CANARY, CANARY);
    assert_debug_has_no_canary(&options.proxy(Proxy::new("h", 1).credentials(CANARY, CANARY)));
    let event =
        PatternEvent::Changed { key: "k".into(), value: Some(CANARY.into()), version: None };
    assert_debug_has_no_canary(&event);
}
