use super::*;
use crate::link::LinkErrorKind;

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_secs(9);

/// Addresses a, b, c and so on, and the time.
struct Tried {
    addresses: Addresses,
    now: Instant,
}

impl Tried {
    fn new(count: u8) -> Self {
        let name = |index: u8| char::from(b'a' + index).to_string();
        let options = (1..count).fold(Options::new("c1", "a", 1883), |options, index| {
            options.add_address(name(index), 1883)
        });
        Self { addresses: Addresses::new(&options), now: Instant::now() }
    }

    /// Hosts that a round tries, in order, if each fails with this error, and the error of the
    /// round.
    fn round(&mut self, why: impl Fn(&str) -> LinkError) -> (String, LinkError) {
        let (mut at, mut tried) = (self.addresses.begin_round(self.now), String::new());
        loop {
            tried.push_str(&at.host);
            match self.addresses.report_failure(why(&at.host)) {
                Ok(next) => at = next,
                Err(error) => return (tried, error),
            }
        }
    }

    /// Hosts that a round tries until it connects to this one.
    fn connect(&mut self, host: &str) -> String {
        let (mut at, mut tried) = (self.addresses.begin_round(self.now), String::new());
        while at.host != host {
            tried.push_str(&at.host);
            at = self.addresses.report_failure(gone("")).expect("the host is an address");
        }
        self.addresses.report_connection(self.now);
        tried + &at.host
    }

    /// Loses the connection after this time.
    fn lose(&mut self, after: Duration, error: LinkError) -> LinkError {
        self.now += after;
        self.addresses.report_loss(error, self.now)
    }
}

fn gone(host: &str) -> LinkError {
    LinkError::transient(format_args!("{host} is gone"))
}

#[test]
fn round_tries_each_address_once_in_order_and_lists_the_errors() {
    let mut tried = Tried::new(3);
    for _ in 0..2 {
        let (order, error) = tried.round(gone);
        assert_eq!(order, "abc");
        assert!(error.is_transient() && !error.is_address_specific());
        let text =
            "all 3 addresses failed: a:1883: a is gone; b:1883: b is gone; c:1883: c is gone";
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn single_address_returns_its_error_with_the_address() {
    let mut tried = Tried::new(1);
    let (order, error) = tried.round(|_| LinkError::fatal("why").address_specific(Some("b")));
    assert_eq!((&*order, &*error.to_string()), ("a", "why (at a:1883)"));
    assert!(!error.is_transient());
    for _ in 0..3 {
        assert_eq!(tried.connect("a"), "a");
        let lost = tried.lose(SHORT, LinkError::fatal("why").address_specific(None));
        assert!(!lost.is_transient() && lost.to_string() == "why (at a:1883)");
    }
}

#[test]
fn round_begins_with_the_last_connected_address_and_wraps_around() {
    let mut tried = Tried::new(4);
    assert_eq!(tried.connect("c"), "abc");
    assert_eq!(tried.lose(LONG, gone("c")).to_string(), "c is gone (at c:1883)");
    assert_eq!(tried.round(gone).0, "cdab");
    assert_eq!(tried.round(gone).0, "cdab", "a failed round changes nothing");
    assert_eq!(tried.connect("b"), "cdab");
    tried.lose(LONG, gone("b"));
    assert_eq!(tried.connect("b"), "b");
}

#[test]
fn permanent_error_ends_the_round() {
    let mut tried = Tried::new(3);
    let (order, error) = tried.round(|host| match host {
        "b" => LinkError::fatal("wrong password"),
        _ => gone(host),
    });
    assert_eq!((&*order, error.is_transient()), ("ab", false));
    assert_eq!(error.to_string(), "wrong password (at b:1883)");
}

#[test]
fn error_of_one_address_is_permanent_only_if_all_fail_permanently() {
    let permanent_here = || LinkError::fatal("another certificate").address_specific(None);
    let mut tried = Tried::new(2);
    let (order, error) =
        tried.round(|host| if host == "a" { permanent_here() } else { gone(host) });
    assert_eq!((&*order, error.is_transient()), ("ab", true));
    let (order, error) = tried.round(|_| permanent_here());
    assert_eq!((&*order, error.is_transient()), ("ab", false));
}

#[test]
fn server_reference_is_followed_to_configured_addresses_once_per_round() {
    let sends =
        |named: &'static str| LinkError::transient("not here").address_specific(Some(named));
    let mut tried = Tried::new(4);
    let order = tried.round(|host| if host == "a" { sends("c:1883") } else { gone(host) }).0;
    assert_eq!(order, "acdb");
    // The next round begins with the address of the last Server Reference.
    assert_eq!(tried.round(gone).0, "cdab");
    for stranger in ["evil:1883", "b:1884", ""] {
        let mut tried = Tried::new(3);
        let (order, error) = tried.round(|_| sends(stranger));
        assert_eq!(order, "abc", "{stranger}");
        assert!(error.is_transient());
    }
    let mut tried = Tried::new(3);
    let to_each_other = |host: &str| if host == "a" { sends("b:1883") } else { sends("a:1883") };
    assert_eq!(tried.round(to_each_other).0, "abc", "mutual references end");
    let mut tried = Tried::new(3);
    assert_eq!(tried.round(|_| sends("a b c")).0, "abc", "a list of names");
}

#[test]
fn client_sent_elsewhere_tries_another_address_first() {
    let mut tried = Tried::new(3);
    tried.connect("a");
    let lost = tried.lose(LONG, LinkError::fatal("server moved").address_specific(None));
    assert!(lost.is_transient() && !lost.is_address_specific());
    assert_eq!(lost.to_string(), "server moved (at a:1883)");
    assert_eq!(tried.round(gone).0, "bca");
    tried.connect("a");
    tried.lose(LONG, LinkError::transient("").address_specific(Some("c:1883")));
    assert_eq!(tried.connect("c"), "c");
    tried.lose(LONG, LinkError::transient("").address_specific(Some("evil:1883")));
    assert_eq!(tried.connect("a"), "a", "the next address in order");
    tried.lose(LONG, LinkError::transient("").address_specific(Some("a:1883")));
    assert_eq!(tried.connect("b"), "b", "a reference to the same server is ignored");
    let lost = tried.lose(LONG, LinkError::fatal("taken over"));
    assert!(!lost.is_transient(), "a permanent error stays permanent");
}

#[test]
fn address_is_skipped_after_two_early_losses_in_a_row() {
    let mut tried = Tried::new(3);
    for host in ["a", "b", "c", "a"] {
        for _ in 0..2 {
            assert_eq!(tried.connect(host), host);
            tried.lose(SHORT, gone(host));
        }
    }
    // A long connection resets the count.
    for after in [SHORT, LONG, SHORT, LONG, SHORT] {
        assert_eq!(tried.connect("b"), "b");
        tried.lose(after, gone("b"));
    }
    assert_eq!(tried.connect("c"), "bc");
    tried.lose(SHORT, gone("c"));
    assert_eq!(tried.connect("c"), "c", "the first early loss");
    // The client ended this connection, for example because a subscription was refused.
    tried.now += SHORT;
    assert_eq!(tried.connect("a"), "a");
}

#[test]
fn unfinished_round_is_discarded() {
    let mut tried = Tried::new(3);
    tried.addresses.begin_round(tried.now);
    tried.addresses.report_failure(gone("a")).expect("another address");
    let (order, error) = tried.round(gone);
    assert_eq!(order, "abc");
    assert!(error.to_string().starts_with("all 3 addresses failed: a:1883: "), "{error}");
}

#[test]
fn address_in_use_is_reported_while_connected() {
    let mut tried = Tried::new(2);
    let in_use = tried.addresses.in_use();
    assert_eq!(in_use.address(), None);
    tried.connect("b");
    assert_eq!(in_use.address(), Some(Address::new("b", 1883)));
    tried.lose(LONG, gone("b"));
    assert_eq!(in_use.address(), None);
}

#[test]
fn addresses_are_distinct_and_at_most_sixteen() {
    let mut options =
        Options::new("c1", "a", 1).add_address("a", 1).add_address("a", 2).add_address("a", 2);
    assert_eq!(options.addresses().count(), 2);
    for port in 0..100 {
        options = options.add_address("b", port);
    }
    assert_eq!(options.addresses().count(), 16);
    options.alternatives = (0..100).map(|port| Address::new("b", port)).collect();
    assert_eq!(options.addresses().count(), 16, "also if the field is set directly");
}

#[test]
fn every_kind_of_failure_of_one_address_has_the_address() {
    use LinkErrorKind as Kind;
    for kind in [
        Kind::Unreachable,
        Kind::TimedOut,
        Kind::Tls,
        Kind::Credentials,
        Kind::ClientId,
        Kind::NotAuthorized,
        Kind::TakenOver,
        Kind::Moved,
        Kind::Refused,
        Kind::Disconnected,
        Kind::Lost,
        Kind::Protocol,
        Kind::SubscriptionRefused,
        Kind::Overloaded,
        Kind::Unsupported,
        Kind::NotConnected,
        Kind::Other,
    ] {
        let fails = || LinkError::new(kind, "why");
        let at_a = Address::new("a", 1883);
        let mut tried = Tried::new(1);
        assert_eq!(tried.round(|_| fails()).1.address(), Some(&at_a), "{kind:?}");
        for count in [1, 2] {
            let mut tried = Tried::new(count);
            tried.connect("a");
            assert_eq!(tried.lose(LONG, fails()).address(), Some(&at_a), "{kind:?}");
            tried.connect("a");
            let moved = fails().address_specific(None);
            assert_eq!(tried.lose(LONG, moved).address(), Some(&at_a), "{kind:?}");
        }
        // A permanent error ends a round of several addresses.
        let error = Tried::new(2).round(|_| fails()).1;
        let expected = (!fails().is_transient()).then_some(&at_a);
        assert_eq!(error.address(), expected, "{kind:?}");
    }
}
