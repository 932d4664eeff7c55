use super::*;

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
        let options = (1..count)
            .fold(Options::new("c1", "a", 1883), |options, index| options.or_at(name(index), 1883));
        Self { addresses: Addresses::new(&options), now: Instant::now() }
    }

    /// Hosts that a round tries, in order, when each fails like this, and how it ends.
    fn round(&mut self, why: impl Fn(&str) -> LinkError) -> (String, LinkError) {
        let (mut at, mut tried) = (self.addresses.begin(self.now), String::new());
        loop {
            tried.push_str(&at.host);
            match self.addresses.failed(why(&at.host)) {
                Ok(next) => at = next,
                Err(error) => return (tried, error),
            }
        }
    }

    /// Hosts that a round tries until this one lets in.
    fn connect(&mut self, host: &str) -> String {
        let (mut at, mut tried) = (self.addresses.begin(self.now), String::new());
        while at.host != host {
            tried.push_str(&at.host);
            at = self.addresses.failed(gone("")).expect("it is there");
        }
        self.addresses.connected(self.now);
        tried + &at.host
    }

    /// Loses the connection after it has lasted for so long.
    fn lose(&mut self, after: Duration, error: LinkError) -> LinkError {
        self.now += after;
        self.addresses.lost(error, self.now)
    }
}

fn gone(host: &str) -> LinkError {
    LinkError::transient(format_args!("{host} is gone"))
}

#[test]
fn a_round_tries_each_once_in_their_order_and_names_each_with_its_reason() {
    let mut tried = Tried::new(3);
    for _ in 0..2 {
        let (order, error) = tried.round(gone);
        assert_eq!(order, "abc");
        assert!(error.is_transient() && !error.is_elsewhere());
        let text =
            "all 3 addresses failed: a:1883: a is gone; b:1883: b is gone; c:1883: c is gone";
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn one_address_alone_fails_as_it_fails() {
    let mut tried = Tried::new(1);
    let (order, error) = tried.round(|_| LinkError::fatal("why").elsewhere(Some("b")));
    assert_eq!((&*order, &*error.to_string()), ("a", "why"));
    assert!(!error.is_transient());
    for _ in 0..3 {
        assert_eq!(tried.connect("a"), "a");
        let lost = tried.lose(SHORT, LinkError::fatal("why").elsewhere(None));
        assert!(!lost.is_transient() && lost.to_string() == "why");
    }
}

#[test]
fn what_was_connected_last_is_tried_first_and_then_the_others_round_again() {
    let mut tried = Tried::new(4);
    assert_eq!(tried.connect("c"), "abc");
    assert_eq!(tried.lose(LONG, gone("c")).to_string(), "c is gone (at c:1883)");
    assert_eq!(tried.round(gone).0, "cdab");
    assert_eq!(tried.round(gone).0, "cdab", "so each round, in vain or not");
    assert_eq!(tried.connect("b"), "cdab");
    tried.lose(LONG, gone("b"));
    assert_eq!(tried.connect("b"), "b");
}

#[test]
fn what_would_be_the_same_everywhere_ends_the_round() {
    let mut tried = Tried::new(3);
    let (order, error) = tried.round(|host| match host {
        "b" => LinkError::fatal("wrong password"),
        _ => gone(host),
    });
    assert_eq!((&*order, error.is_transient()), ("ab", false));
    assert_eq!(error.to_string(), "wrong password (at b:1883)");
}

#[test]
fn what_is_in_vain_at_one_address_is_final_only_if_it_is_at_all() {
    let in_vain = || LinkError::fatal("another certificate").elsewhere(None);
    let mut tried = Tried::new(2);
    let (order, error) = tried.round(|host| if host == "a" { in_vain() } else { gone(host) });
    assert_eq!((&*order, error.is_transient()), ("ab", true));
    let (order, error) = tried.round(|_| in_vain());
    assert_eq!((&*order, error.is_transient()), ("ab", false));
}

#[test]
fn a_server_reference_is_followed_to_what_was_configured_only_and_once_a_round() {
    let sends = |named: &'static str| LinkError::transient("not here").elsewhere(Some(named));
    let mut tried = Tried::new(4);
    let order = tried.round(|host| if host == "a" { sends("c:1883") } else { gone(host) }).0;
    assert_eq!(order, "acdb");
    // So begins the next round, since that one was told of last.
    assert_eq!(tried.round(gone).0, "cdab");
    for stranger in ["evil:1883", "b:1884", ""] {
        let mut tried = Tried::new(3);
        let (order, error) = tried.round(|_| sends(stranger));
        assert_eq!(order, "abc", "{stranger}");
        assert!(error.is_transient());
    }
    let mut tried = Tried::new(3);
    let to_each_other = |host: &str| if host == "a" { sends("b:1883") } else { sends("a:1883") };
    assert_eq!(tried.round(to_each_other).0, "abc", "it ends");
    let mut tried = Tried::new(3);
    assert_eq!(tried.round(|_| sends("a b c")).0, "abc", "a list of them");
}

#[test]
fn whom_the_broker_sends_away_goes_elsewhere_first() {
    let mut tried = Tried::new(3);
    tried.connect("a");
    let lost = tried.lose(LONG, LinkError::fatal("server moved").elsewhere(None));
    assert!(lost.is_transient() && !lost.is_elsewhere());
    assert_eq!(lost.to_string(), "server moved (at a:1883)");
    assert_eq!(tried.round(gone).0, "bca");
    tried.connect("a");
    tried.lose(LONG, LinkError::transient("").elsewhere(Some("c:1883")));
    assert_eq!(tried.connect("c"), "c");
    tried.lose(LONG, LinkError::transient("").elsewhere(Some("evil:1883")));
    assert_eq!(tried.connect("a"), "a", "the one after the last");
    tried.lose(LONG, LinkError::transient("").elsewhere(Some("a:1883")));
    assert_eq!(tried.connect("b"), "b", "itself is no other server");
    let lost = tried.lose(LONG, LinkError::fatal("taken over"));
    assert!(!lost.is_transient(), "what is final stays so");
}

#[test]
fn an_address_that_connects_and_is_lost_at_once_gives_way_after_the_second_time() {
    let mut tried = Tried::new(3);
    for host in ["a", "b", "c", "a"] {
        for _ in 0..2 {
            assert_eq!(tried.connect(host), host);
            tried.lose(SHORT, gone(host));
        }
    }
    // One that lasted counts anew.
    for after in [SHORT, LONG, SHORT, LONG, SHORT] {
        assert_eq!(tried.connect("b"), "b");
        tried.lose(after, gone("b"));
    }
    assert_eq!(tried.connect("c"), "bc");
    tried.lose(SHORT, gone("c"));
    assert_eq!(tried.connect("c"), "c", "its first time");
    // This side has ended it, for want of a subscription say.
    tried.now += SHORT;
    assert_eq!(tried.connect("a"), "a");
}

#[test]
fn a_round_that_was_given_up_is_forgotten() {
    let mut tried = Tried::new(3);
    tried.addresses.begin(tried.now);
    tried.addresses.failed(gone("a")).expect("more");
    let (order, error) = tried.round(gone);
    assert_eq!(order, "abc");
    assert!(error.to_string().starts_with("all 3 addresses failed: a:1883: "), "{error}");
}

#[test]
fn which_one_is_in_use_is_told_while_it_is() {
    let mut tried = Tried::new(2);
    let in_use = tried.addresses.in_use();
    assert_eq!(in_use.address(), None);
    tried.connect("b");
    assert_eq!(in_use.address(), Some(Address::new("b", 1883)));
    tried.lose(LONG, gone("b"));
    assert_eq!(in_use.address(), None);
}

#[test]
fn there_are_sixteen_addresses_at_most_and_none_twice() {
    let mut options = Options::new("c1", "a", 1).or_at("a", 1).or_at("a", 2).or_at("a", 2);
    assert_eq!(options.addresses().count(), 2);
    for port in 0..100 {
        options = options.or_at("b", port);
    }
    assert_eq!(options.addresses().count(), 16);
    options.alternatives = (0..100).map(|port| Address::new("b", port)).collect();
    assert_eq!(options.addresses().count(), 16, "nor where the field was set");
}
