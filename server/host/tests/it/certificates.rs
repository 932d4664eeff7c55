//! Users from client certificates.

use std::fs;
use std::path::PathBuf;

use statestore_client::{SessionSocket, Tls};
use statestore_server::policy::{CertificateAttributes, Policy};
use statestore_server::{
    CertificateName, CertificateUsers, ServerTls, SharedPolicy, TlsPem, Users,
};
use statestore_testkit::credentials::Certificates;
use statestore_testkit::process::timely;
use statestore_testkit::wire::packets::Reason;
use statestore_tokio::Options as ClientOptions;

use super::*;

/// The certificates of a test.
struct Pki(Certificates);

impl Pki {
    fn new(test: &str) -> Option<Self> {
        Certificates::make(test).map(Self)
    }

    fn secured(&self) -> Options {
        let pem = TlsPem::new(self.0.read("broker.pem"), self.0.read("broker.key"));
        let pem = pem.client_ca(self.0.read("ca.pem"));
        secured(ServerTls::from_pem(&pem).expect("valid files"))
    }

    /// Writes a certificate chain to a file.
    fn chain(&self, names: &[&str]) -> PathBuf {
        let path = self.0.path(&format!("{}.chain", names.join("-")));
        let chain: Vec<u8> =
            names.iter().flat_map(|name| self.0.read(&format!("{name}.pem"))).collect();
        fs::write(&path, chain).expect("a file");
        path
    }

    /// Connects with a chain, the key of its first certificate, and an optional login. Returns the
    /// reason in the CONNACK.
    async fn connect_reason(
        &self,
        broker: &Broker,
        client_id: &str,
        chain: &[&str],
        login: Option<(&str, &str)>,
    ) -> Option<Reason> {
        let key = self.0.path(&format!("{}.key", chain[0]));
        let tls = Tls::default().ca_file(self.0.path("ca.pem")).identity(self.chain(chain), key);
        let mut options = ClientOptions::new(client_id, "localhost", broker.local_addr().port());
        if let Some((user, password)) = login {
            options = options.credentials(user, password);
        }
        match SessionSocket::connect(&options.tls(tls)).await {
            Ok(_) => Some(Reason::SUCCESS),
            Err(error) => error.reason().map(|reason| Reason(reason.0)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_name_in_certificate_is_the_user() {
    let Some(pki) = Pki::new("configured_name_in_certificate_is_the_user") else { return };
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
        pki.0.make_client(name, subject, names, "ca");
    }
    let cn = [
        ("ann", "ann", Reason::SUCCESS),
        ("ann", "ann-1", Reason::SUCCESS),
        ("ann", "bob", Reason::CLIENT_IDENTIFIER_NOT_VALID),
        ("ann", "", Reason::SUCCESS),
        ("star", "*", Reason::SUCCESS),
        ("star", "ann", Reason::CLIENT_IDENTIFIER_NOT_VALID),
        ("none", "ann", Reason::NOT_AUTHORIZED),
        ("twice", "ann", Reason::NOT_AUTHORIZED),
        ("level", "ann/x", Reason::NOT_AUTHORIZED),
        ("colon", "system:admin", Reason::NOT_AUTHORIZED),
        ("control", "ann\x01", Reason::NOT_AUTHORIZED),
        ("line", "ann", Reason::NOT_AUTHORIZED),
        ("blank", "ann", Reason::NOT_AUTHORIZED),
        ("hidden", "ann#", Reason::NOT_AUTHORIZED),
    ];
    let dns = [
        ("ann", "door-1", Reason::SUCCESS),
        ("ann", "ann", Reason::CLIENT_IDENTIFIER_NOT_VALID),
        ("none", "door", Reason::NOT_AUTHORIZED),
        ("twice", "d", Reason::NOT_AUTHORIZED),
        ("level", "a+b", Reason::NOT_AUTHORIZED),
        ("colon", "spiffe", Reason::NOT_AUTHORIZED),
    ];
    let email = [
        ("ann", "ann@home", Reason::SUCCESS),
        ("star", "*", Reason::NOT_AUTHORIZED),
        ("control", "ann@home", Reason::NOT_AUTHORIZED),
    ];
    timely(async {
        for (kind, cases) in [
            (CertificateName::CommonName, &cn[..]),
            (CertificateName::Dns, &dns),
            (CertificateName::Email, &email),
        ] {
            let options = pki.secured().certificate_users(CertificateUsers::new(kind));
            let (broker, _service) = start(options).await;
            for (certificate, client_id, expected) in cases {
                // MQTT allows no control characters in a client id.
                let client_id = client_id.replace(char::is_control, "");
                let reason = pki.connect_reason(&broker, &client_id, &[certificate], None).await;
                assert_eq!(reason, Some(*expected), "{kind:?} {certificate} {client_id}");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn user_name_must_match_the_certificate() {
    let Some(pki) = Pki::new("user_name_must_match_the_certificate") else { return };
    for name in ["ann", "bob"] {
        pki.0.make_client(name, &format!("/CN={name}"), "", "ca");
    }
    timely(async {
        let secured =
            || pki.secured().certificate_users(CertificateUsers::new(CertificateName::CommonName));
        let (broker, _service) = start(secured()).await;
        for (certificate, user, expected) in
            [("ann", "ann", Reason::SUCCESS), ("ann", "bob", Reason::BAD_USER_NAME_OR_PASSWORD)]
        {
            let login = Some((user, "whatever"));
            let reason = pki.connect_reason(&broker, user, &[certificate], login).await;
            assert_eq!(reason, Some(expected), "{certificate} {user}");
        }
        // With passwords a client needs both.
        let mut users = Users::default();
        users.set("ann", "secret").expect("a user");
        users.set("ann-marie", "secret").expect("a user");
        let (broker, _service) = start(secured().users(users)).await;
        for (certificate, login, expected) in [
            ("ann", Some(("ann", "secret")), Reason::SUCCESS),
            ("ann", Some(("ann", "wrong")), Reason::BAD_USER_NAME_OR_PASSWORD),
            ("ann", None, Reason::BAD_USER_NAME_OR_PASSWORD),
            ("bob", Some(("ann", "secret")), Reason::BAD_USER_NAME_OR_PASSWORD),
        ] {
            let reason = pki.connect_reason(&broker, "ann", &[certificate], login).await;
            assert_eq!(reason, Some(expected), "{certificate} {login:?}");
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
async fn attributes_come_from_the_verified_chain() {
    let Some(pki) = Pki::new("attributes_come_from_the_verified_chain") else {
        return;
    };
    pki.0.make_intermediate("seattle", "/O=Home, sweet/CN=seattle", "ca");
    pki.0.make_authority("rogue");
    pki.0.make_intermediate("pretended", "/O=Home, sweet/CN=seattle", "rogue");
    pki.0.make_client("fan", "/CN=fan", "", "seattle");
    pki.0.make_client("pump", "/CN=pump", "", "seattle");
    pki.0.make_client("other", "/CN=other", "", "ca");
    pki.0.make_client("rogues", "/CN=fan", "", "rogue");
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
        let users = CertificateUsers::new(CertificateName::CommonName);
        let options = pki.secured().policy(policy).certificate_users(users.clone());
        let (broker, _service) = start(options).await;
        let connect_reason = |id, chain| pki.connect_reason(&broker, id, chain, None);
        assert_eq!(
            connect_reason("seattle-fan", &["fan", "seattle"]).await,
            Some(Reason::NOT_AUTHORIZED),
            "no attributes yet"
        );
        users.replace_attributes(table("seattle"));
        for (client_id, chain, expected) in [
            ("seattle-fan", &["fan", "seattle"][..], Some(Reason::SUCCESS)),
            ("fan", &["fan", "seattle"], Some(Reason::NOT_AUTHORIZED)),
            // The entry of the client's own subject takes precedence.
            ("seattle-pump", &["pump", "seattle"], Some(Reason::NOT_AUTHORIZED)),
            ("seattle-other", &["other"], Some(Reason::NOT_AUTHORIZED)),
            // Certificates outside the verified chain are ignored.
            ("seattle-other", &["other", "seattle"], Some(Reason::NOT_AUTHORIZED)),
            ("seattle-other", &["other", "pretended"], Some(Reason::NOT_AUTHORIZED)),
            ("seattle-fan", &["rogues", "rogue"], None),
        ] {
            assert_eq!(connect_reason(client_id, chain).await, expected, "{client_id} {chain:?}");
        }
        let tls = Tls::default()
            .ca_file(pki.0.path("ca.pem"))
            .identity(pki.chain(&["fan", "seattle"]), pki.0.path("fan.key"));
        let port = broker.local_addr().port();
        let options = ClientOptions::new("seattle-fan", "localhost", port).tls(tls);
        let fan = statestore_client::connect(options).expect("a client id");
        fan.wait_connected().await.expect("connect");
        assert_eq!(broker.recheck(), 0);
        users.replace_attributes(table("boston"));
        assert_eq!(broker.recheck(), 1, "the attribute has changed");
    })
    .await;
}
