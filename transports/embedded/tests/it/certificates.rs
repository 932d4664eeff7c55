//! Who clients are by their certificates.

use std::fs;
use std::path::PathBuf;

use statestore_embedded::policy::{CertificateAttributes, Policy};
use statestore_embedded::{
    CertificateName, CertificateUsers, SharedPolicy, Users, rustls::ServerConfig, tls_config,
};
use statestore_rumqttc::{Tls, mqtt_options, rumqttc};
use statestore_tests::certificates::Certificates;
use statestore_tests::mqttbytes::v5::ConnectReturnCode;
use statestore_tests::timely::timely;
use statestore_tokio::Options as ClientOptions;

use super::*;

/// What a broker has and clients get.
struct Made(Certificates);

impl Made {
    fn new(test: &str) -> Option<Self> {
        Certificates::make(test).map(Self)
    }

    fn tls(&self) -> std::sync::Arc<ServerConfig> {
        let (chain, key) = (self.0.read("broker.pem"), self.0.read("broker.key"));
        tls_config(&chain, &key, Some(&self.0.read("ca.pem"))).expect("good files")
    }

    fn users(&self, name: CertificateName) -> CertificateUsers {
        CertificateUsers::new(&self.0.read("ca.pem"), name).expect("an authority")
    }

    /// A chain of these, in a file.
    fn chain(&self, names: &[&str]) -> PathBuf {
        let path = self.0.path(&format!("{}.chain", names.join("-")));
        let chain: Vec<u8> =
            names.iter().flat_map(|name| self.0.read(&format!("{name}.pem"))).collect();
        fs::write(&path, chain).expect("a file");
        path
    }

    /// What a client is told that comes with a chain, the key of its first certificate, and perhaps a user name.
    async fn answer(
        &self,
        broker: &Broker,
        client_id: &str,
        chain: &[&str],
        login: Option<(&str, &str)>,
    ) -> Option<ConnectReturnCode> {
        let key = self.0.path(&format!("{}.key", chain[0]));
        let tls = Tls::default().ca_file(self.0.path("ca.pem")).identity(self.chain(chain), key);
        let mut options = ClientOptions::new(client_id, "localhost", broker.local_addr().port());
        if let Some((user, password)) = login {
            options = options.credentials(user, password);
        }
        let mqtt = mqtt_options(&options.tls(tls)).expect("good files");
        let (_client, mut events) = rumqttc::v5::AsyncClient::new(mqtt, 1);
        loop {
            match events.poll().await {
                Ok(rumqttc::v5::Event::Incoming(rumqttc::v5::Incoming::ConnAck(told))) => {
                    return Some(told.code);
                }
                Err(rumqttc::v5::ConnectionError::ConnectionRefused(code)) => return Some(code),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }
}

use ConnectReturnCode::{BadUserNamePassword, ClientIdentifierNotValid, NotAuthorized, Success};

#[tokio::test(flavor = "multi_thread")]
async fn one_name_in_a_certificate_is_the_user() {
    let Some(made) = Made::new("one_name_in_a_certificate_is_the_user") else { return };
    let long = format!("DNS:{}", "d".repeat(300));
    for (name, subject, names) in [
        ("ann", "/CN=ann", "DNS:door,email:ann@home"),
        ("star", "/CN=*", ""),
        ("none", "/O=ann", "DNS:door,DNS:door2"),
        ("twice", "/CN=ann/CN=bob", long.as_str()),
        ("level", "/CN=ann\\/x", "DNS:a+b"),
        ("colon", "/CN=system:admin", "URI:spiffe://home/ann"),
        ("control", "/CN=ann\x01", "email:ann@home,email:bob@home"),
        ("line", "/CN=ann\nadmin", ""),
        ("blank", "/CN= ann", ""),
        ("hidden", "/O=x/CN=ann#", ""),
    ] {
        made.0.make_client(name, subject, names, "ca");
    }
    let cn = [
        ("ann", "ann", Success),
        ("ann", "ann-1", Success),
        ("ann", "bob", ClientIdentifierNotValid),
        ("ann", "", Success),
        ("star", "*", Success),
        ("star", "ann", ClientIdentifierNotValid),
        ("none", "ann", NotAuthorized),
        ("twice", "ann", NotAuthorized),
        ("level", "ann/x", NotAuthorized),
        ("colon", "system:admin", NotAuthorized),
        ("control", "ann\x01", NotAuthorized),
        ("line", "ann", NotAuthorized),
        ("blank", "ann", NotAuthorized),
        ("hidden", "ann#", NotAuthorized),
    ];
    let dns = [
        ("ann", "door-1", Success),
        ("ann", "ann", ClientIdentifierNotValid),
        ("none", "door", NotAuthorized),
        ("twice", "d", NotAuthorized),
        ("level", "a+b", NotAuthorized),
        ("colon", "spiffe", NotAuthorized),
    ];
    let email = [
        ("ann", "ann@home", Success),
        ("star", "*", NotAuthorized),
        ("control", "ann@home", NotAuthorized),
    ];
    timely(async {
        for (kind, cases) in [
            (CertificateName::CommonName, &cn[..]),
            (CertificateName::Dns, &dns),
            (CertificateName::Email, &email),
        ] {
            let options = options().tls(made.tls()).certificate_users(made.users(kind));
            let (broker, _service) = start(options).await;
            for (certificate, client_id, expected) in cases {
                // What cannot be written as a client id is none that matters.
                let client_id = client_id.replace(char::is_control, "");
                let told = made.answer(&broker, &client_id, &[certificate], None).await;
                assert_eq!(told, Some(*expected), "{kind:?} {certificate} {client_id}");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_name_is_that_of_the_certificate() {
    let Some(made) = Made::new("a_user_name_is_that_of_the_certificate") else { return };
    for name in ["ann", "bob"] {
        made.0.make_client(name, &format!("/CN={name}"), "", "ca");
    }
    timely(async {
        let secured =
            || options().tls(made.tls()).certificate_users(made.users(CertificateName::CommonName));
        let (broker, _service) = start(secured()).await;
        for (certificate, user, expected) in
            [("ann", "ann", Success), ("ann", "bob", BadUserNamePassword)]
        {
            let login = Some((user, "whatever"));
            let told = made.answer(&broker, user, &[certificate], login).await;
            assert_eq!(told, Some(expected), "{certificate} {user}");
        }
        // With passwords it takes both.
        let mut users = Users::default();
        users.set("ann", "secret").expect("a user");
        users.set("ann-marie", "secret").expect("a user");
        let (broker, _service) = start(secured().users(users)).await;
        for (certificate, login, expected) in [
            ("ann", Some(("ann", "secret")), Success),
            ("ann", Some(("ann", "wrong")), BadUserNamePassword),
            ("ann", None, BadUserNamePassword),
            ("bob", Some(("ann", "secret")), BadUserNamePassword),
        ] {
            let told = made.answer(&broker, "ann", &[certificate], login).await;
            assert_eq!(told, Some(expected), "{certificate} {login:?}");
        }
    })
    .await;
}

const POLICY: &str = r#"
rules:
  - principals: {attributes: [{site: seattle}]}
    brokerResources:
      - {method: Connect, clientIds: ["{principal.attributes.site}-{principal.username}"]}
      - {method: Subscribe, topics: ["clients/#"]}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_chain_that_proves_a_certificate_has_its_attributes() {
    let Some(made) = Made::new("the_chain_that_proves_a_certificate_has_its_attributes") else {
        return;
    };
    made.0.make_intermediate("seattle", "/O=Home, sweet/CN=seattle", "ca");
    made.0.make_authority("rogue");
    made.0.make_intermediate("pretended", "/O=Home, sweet/CN=seattle", "rogue");
    made.0.make_client("fan", "/CN=fan", "", "seattle");
    made.0.make_client("pump", "/CN=pump", "", "seattle");
    made.0.make_client("other", "/CN=other", "", "ca");
    made.0.make_client("rogues", "/CN=fan", "", "rogue");
    let table = |site: &str| {
        let text = format!(
            r#"{{"authorizationAttributes": {{
                "a": {{"subject": "CN = seattle, O = Home\\, sweet", "attributes": {{"site": "{site}"}}}},
                "b": {{"subject": "CN=pump", "attributes": {{"kind": "pump"}}}}}}}}"#
        );
        CertificateAttributes::parse(&text).expect("a table")
    };
    timely(async {
        let policy = SharedPolicy::from(Policy::parse(POLICY).expect("a policy"));
        let users = made.users(CertificateName::CommonName);
        let options = options().tls(made.tls()).policy(policy).certificate_users(users.clone());
        let (broker, _service) = start(options).await;
        let answer = |id, chain| made.answer(&broker, id, chain, None);
        assert_eq!(
            answer("seattle-fan", &["fan", "seattle"]).await,
            Some(NotAuthorized),
            "none yet"
        );
        users.replace_attributes(table("seattle"));
        for (client_id, chain, expected) in [
            ("seattle-fan", &["fan", "seattle"][..], Some(Success)),
            ("fan", &["fan", "seattle"], Some(NotAuthorized)),
            // The entry of its own subject is the first.
            ("seattle-pump", &["pump", "seattle"], Some(NotAuthorized)),
            ("seattle-other", &["other"], Some(NotAuthorized)),
            // Certificates that prove nothing are of no use, whoever has made them.
            ("seattle-other", &["other", "seattle"], Some(NotAuthorized)),
            ("seattle-other", &["other", "pretended"], Some(NotAuthorized)),
            ("seattle-fan", &["rogues", "rogue"], None),
        ] {
            assert_eq!(answer(client_id, chain).await, expected, "{client_id} {chain:?}");
        }
        let tls = Tls::default()
            .ca_file(made.0.path("ca.pem"))
            .identity(made.chain(&["fan", "seattle"]), made.0.path("fan.key"));
        let port = broker.local_addr().port();
        let options = ClientOptions::new("seattle-fan", "localhost", port).tls(tls);
        let fan = statestore_rumqttc::connect(options).expect("a client id");
        fan.connected().await.expect("it connects");
        assert_eq!(broker.recheck(), 0);
        users.replace_attributes(table("boston"));
        assert_eq!(broker.recheck(), 1, "it is elsewhere now");
    })
    .await;
}
