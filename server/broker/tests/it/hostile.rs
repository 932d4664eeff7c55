//! Honest clients make progress while hostile clients run all attacks at the same time.

use statestore_broker::{Acl, LocalEvent, LocalId};
use statestore_mqtt::packet::Filters;

use super::*;

const MEMORY: usize = 2 << 20;
const SHARE: usize = 200 << 10;
const HONEST: [&str; 3] = ["honest 0", "honest 1", "honest 2"];
const HOSTILE: usize = 12;

/// `requests` is for the host only, and `responses/ID` for the client with this id.
struct OwnResponses;

impl Acl for OwnResponses {
    fn may_receive(&self, client_id: &str, topic: &str) -> bool {
        topic != "requests"
            && topic.strip_prefix("responses/").is_none_or(|owner| owner == client_id)
    }

    fn may_publish(&self, _: &str, topic: &str, _: Option<&str>) -> Result<(), Reason> {
        if topic.starts_with("responses/") { Err(Reason::NOT_AUTHORIZED) } else { Ok(()) }
    }
}

/// A random number generator: equal seeds produce equal attacks.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A client that sends its next request after the response to the previous one, and receives
/// notifications of the host.
struct Honest {
    id: ConnectionId,
    requests: u16,
    responses: u16,
    /// Step of the last request.
    since: usize,
    notifications: u32,
}

struct Siege {
    net: Net,
    host: LocalId,
    rng: Rng,
    honest: Vec<Honest>,
    hostile: Vec<Option<ConnectionId>>,
    notifications: u32,
}

impl Siege {
    fn new(seed: u64) -> Self {
        let mut config = Config { acl: std::sync::Arc::new(OwnResponses), ..Config::default() };
        config.limits.memory = MEMORY;
        config.limits.session_memory = SHARE;
        config.limits.host_queue_bytes = 20 << 10;
        config.limits.retained_memory = SHARE;
        let mut net = Net::new(config);
        let host = net.broker.attach_host(net.now, "$host");
        let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..Default::default() };
        let subscription = Subscription { filter: "requests", options };
        assert_eq!(net.broker.subscribe_local(host, &subscription), Reason::GRANTED_QOS_1);
        let honest = HONEST.map(|name| {
            let id = net.connect(name, CLEAN);
            net.subscribe(id, &format!("responses/{name}"), Qos::AtLeastOnce);
            Honest { id, requests: 0, responses: 0, since: 0, notifications: 0 }
        });
        let hostile = vec![None; HOSTILE];
        Self { net, host, rng: Rng(seed), honest: honest.into(), hostile, notifications: 0 }
    }

    /// A random attack by a random hostile client.
    fn attack(&mut self) {
        let attacker = usize::try_from(self.rng.below(HOSTILE as u64)).unwrap();
        let (net, rng) = (&mut self.net, &mut self.rng);
        let alive = self.hostile[attacker].filter(|id| !net.broker.is_closing(*id));
        let Some(id) = alive.filter(|_| rng.below(40) > 0) else {
            if let Some(old) = self.hostile[attacker].take() {
                net.close(old);
            }
            // Client ids collide, so clients take over from each other. Each client has a will that
            // all subscribers receive, and a session that does not expire.
            let name = format!("hostile {}", rng.below(HOSTILE as u64 / 2));
            let payload = "w".repeat(2_000);
            let properties = [Property::SessionExpiry(u32::MAX), Property::ReceiveMaximum(1)];
            let will = will("everybody/will", &payload, &[]);
            let options = ConnectOptions {
                clean_start: false,
                properties: &properties,
                will: Some(will),
                ..CLEAN
            };
            self.hostile[attacker] = Some(net.try_connect(&name, options));
            return;
        };
        if !net.broker.wants_input(id) {
            return;
        }
        let packet = u16::try_from(rng.below(1_000)).unwrap() + 1;
        let payload = "x".repeat(usize::try_from(rng.below(8_000)).unwrap());
        match rng.below(9) {
            0 => net.publish(id, "requests", &payload, Qos::AtMostOnce, 0),
            1 => (0..50).for_each(|_| net.publish(id, "requests", "", Qos::AtLeastOnce, packet)),
            2 => net.publish(id, "everybody/flood", &payload, Qos::ExactlyOnce, packet),
            3 => {
                let topic = format!("everybody/{packet}");
                let publish =
                    Publish { retain: true, ..publish(&topic, &payload, Qos::AtLeastOnce, packet) };
                net.send(id, Packet::Publish(publish));
            }
            4 => {
                let options = SubscriptionOptions { qos: Qos::ExactlyOnce, ..Default::default() };
                net.subscribe_with(id, "#", options, &[]);
                net.subscribe_with(id, "everybody/+", options, &[]);
            }
            5 => {
                let filters: Vec<String> = (0..300).map(|at| format!("f/{at}/{packet}")).collect();
                let list: Vec<&str> = filters.iter().map(String::as_str).collect();
                let filters = Filters::new(&list);
                let packet = statestore_mqtt::packet::Unsubscribe {
                    id: packet_id(packet),
                    properties: &[][..],
                    filters,
                };
                net.send(id, Packet::Unsubscribe(packet));
            }
            6 => {
                let alias = [Property::TopicAlias(packet % 18)];
                let publish = Publish {
                    properties: &alias[..],
                    ..publish("everybody/alias", "x", Qos::AtMostOnce, 0)
                };
                net.send(id, Packet::Publish(publish));
            }
            7 => net.write(id, &[0x30, 0xff, 0xff, 0x03, 0x00, 0x01]),
            // Output is polled but never written to a connection.
            _ => {
                let _ = net.broker.poll_output(net.now, id, &mut BytesMut::new());
            }
        }
    }

    /// The host responds to up to eight requests, and sometimes notifies the honest clients.
    fn serve(&mut self) {
        for _ in 0..8 {
            let event = self.net.broker.poll_local(self.net.now, self.host);
            let Some(event) = event else { break };
            if let LocalEvent::Message(message, _) = event {
                let topic = format!("responses/{}", message.sender().unwrap());
                let payload = message.payload();
                let response =
                    Publish { payload: &payload, ..publish(&topic, "", Qos::AtLeastOnce, 0) };
                let result = self.net.broker.publish_local(self.net.now, self.host, &response);
                assert!(result.is_ok());
            }
        }
        if self.rng.below(10) == 0 {
            self.notifications += 1;
            let payload = self.notifications.to_string();
            for name in HONEST {
                let notification = publish("notifications", &payload, Qos::AtLeastOnce, 0);
                let reason = self.net.broker.deliver(self.net.now, name, &notification);
                assert_eq!(reason, Reason::SUCCESS);
            }
        }
    }

    /// Honest clients read, acknowledge and send requests. Returns the longest response time in
    /// steps.
    fn work(&mut self, step: usize) -> usize {
        let mut longest = 0;
        for (honest, name) in self.honest.iter_mut().zip(HONEST) {
            for message in self.net.receive_messages(honest.id) {
                self.net.ack(honest.id, message.id);
                let text = String::from_utf8(message.payload).unwrap();
                if message.topic == "notifications" {
                    honest.notifications += 1;
                    assert_eq!(
                        text,
                        honest.notifications.to_string(),
                        "notifications arrive once and in order"
                    );
                } else {
                    assert_eq!(message.topic, format!("responses/{}", name));
                    honest.responses += 1;
                    assert_eq!(text, honest.responses.to_string());
                    longest = longest.max(step - honest.since);
                }
            }
            assert!(
                !self.net.broker.is_closing(honest.id),
                "the broker closes an honest connection"
            );
            if honest.responses == honest.requests {
                honest.requests += 1;
                honest.since = step;
                let payload = honest.requests.to_string();
                self.net.publish(
                    honest.id,
                    "requests",
                    &payload,
                    Qos::AtLeastOnce,
                    honest.requests,
                );
            }
            longest = longest.max(step - honest.since);
        }
        longest
    }
}

#[test]
fn honest_clients_make_progress_during_attacks() {
    for seed in 1..=2 {
        let mut siege = Siege::new(seed);
        let mut longest = 0;
        for step in 0..3_000 {
            for _ in 0..4 {
                siege.attack();
            }
            siege.serve();
            longest = longest.max(siege.work(step));
            siege.net.advance(Duration::from_millis(10));
            let stats = siege.net.broker.stats();
            assert!(stats.bytes <= MEMORY + SHARE, "{stats:?} at step {step}");
        }
        let stats = siege.net.broker.stats();
        let responses: Vec<u16> = siege.honest.iter().map(|honest| honest.responses).collect();
        assert!(longest <= 30, "longest response time: {longest} steps");
        assert!(responses.iter().all(|count| *count > 300), "{responses:?}");
        assert!(
            siege.notifications > 100 && stats.evicted > 10,
            "{} notifications, {stats:?}",
            siege.notifications
        );
    }
}
