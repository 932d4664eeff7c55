//! Everything that attackers do, at the same time and for long, while others work.

use statestore_mqtt::broker::{LocalEvent, LocalId, Rules};
use statestore_mqtt::packet::Filters;

use super::*;

const MEMORY: usize = 2 << 20;
const SHARE: usize = 200 << 10;
const HONEST: [&str; 3] = ["honest 0", "honest 1", "honest 2"];
const HOSTILE: usize = 12;

/// Requests are for the host alone, and answers for whom they are named.
struct Own;

impl Rules for Own {
    fn may_receive(&self, client_id: &str, topic: &str) -> bool {
        topic != "requests" && topic.strip_prefix("answers/").is_none_or(|own| own == client_id)
    }

    fn may_publish(&self, _: &str, topic: &str, _: Option<&str>) -> Result<(), Reason> {
        if topic.starts_with("answers/") { Err(Reason::NOT_AUTHORIZED) } else { Ok(()) }
    }
}

/// Equal seeds, equal attacks.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// One who asks, and waits for the answer before it asks again; and what the host has told it by itself.
struct Honest {
    id: ConnectionId,
    asked: u16,
    answered: u16,
    since: usize,
    notes: u32,
}

struct Siege {
    net: Net,
    host: LocalId,
    dice: Dice,
    honest: Vec<Honest>,
    hostile: Vec<Option<ConnectionId>>,
    notes: u32,
}

impl Siege {
    fn new(seed: u64) -> Self {
        let mut config = Config { rules: std::sync::Arc::new(Own), ..Config::default() };
        config.limits.memory = MEMORY;
        config.limits.share = SHARE;
        config.limits.waiting = 20 << 10;
        config.limits.retained = SHARE;
        let mut net = Net::new(config);
        let host = net.broker.attach_host(net.now, "$host");
        let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..Default::default() };
        let subscription = Subscription { filter: "requests", options };
        assert_eq!(net.broker.subscribe_local(host, &subscription), Reason::GRANTED_QOS_1);
        let honest = HONEST.map(|name| {
            let id = net.connect(name, HELLO);
            net.subscribe(id, &format!("answers/{name}"), Qos::AtLeastOnce);
            Honest { id, asked: 0, answered: 0, since: 0, notes: 0 }
        });
        let hostile = vec![None; HOSTILE];
        Self { net, host, dice: Dice(seed), honest: honest.into(), hostile, notes: 0 }
    }

    /// One attack by one of them.
    fn attack(&mut self) {
        let who = usize::try_from(self.dice.roll(HOSTILE as u64)).unwrap();
        let (net, dice) = (&mut self.net, &mut self.dice);
        let alive = self.hostile[who].filter(|id| !net.broker.is_closing(*id));
        let Some(id) = alive.filter(|_| dice.roll(40) > 0) else {
            if let Some(old) = self.hostile[who].take() {
                net.close(old);
            }
            // Some take over from each other; their wills go to everybody, and their sessions stay.
            let name = format!("hostile {}", dice.roll(HOSTILE as u64 / 2));
            let payload = "w".repeat(2_000);
            let stays = [Property::SessionExpiry(u32::MAX), Property::ReceiveMaximum(1)];
            let will = will("everybody/will", &payload, &[]);
            let hello = Hello { clean_start: false, properties: &stays, will: Some(will), ..HELLO };
            self.hostile[who] = Some(net.try_connect(&name, hello));
            return;
        };
        if !net.broker.wants_input(id) {
            return;
        }
        let packet = u16::try_from(dice.roll(1_000)).unwrap() + 1;
        let payload = "x".repeat(usize::try_from(dice.roll(8_000)).unwrap());
        match dice.roll(9) {
            0 => net.publish(id, "requests", &payload, Qos::AtMostOnce, 0),
            1 => (0..50).for_each(|_| net.publish(id, "requests", "", Qos::AtLeastOnce, packet)),
            2 => net.publish(id, "everybody/hears", &payload, Qos::ExactlyOnce, packet),
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
                    id: number(packet),
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
            // It is given out, and never written.
            _ => {
                let _ = net.broker.poll_output(net.now, id, &mut BytesMut::new());
            }
        }
    }

    /// The host answers what it is asked, and tells the honest ones something now and then.
    fn serve(&mut self) {
        for _ in 0..8 {
            let event = self.net.broker.poll_local(self.net.now, self.host);
            let Some(event) = event else { break };
            if let LocalEvent::Message(message) = event {
                let topic = format!("answers/{}", message.sender().unwrap());
                let payload = message.payload();
                let answer =
                    Publish { payload: &payload, ..publish(&topic, "", Qos::AtLeastOnce, 0) };
                let told = self.net.broker.publish_local(self.net.now, self.host, &answer);
                assert!(told.is_ok());
            }
        }
        if self.dice.roll(10) == 0 {
            self.notes += 1;
            let note = self.notes.to_string();
            for name in HONEST {
                let note = publish("note", &note, Qos::AtLeastOnce, 0);
                assert_eq!(self.net.broker.deliver(self.net.now, name, &note), Reason::SUCCESS);
            }
        }
    }

    /// The honest ones read, acknowledge and ask; how long the last answer took.
    fn work(&mut self, step: usize) -> usize {
        let mut longest = 0;
        for (who, honest) in self.honest.iter_mut().enumerate() {
            for message in self.net.heard(honest.id) {
                self.net.ack(honest.id, message.id);
                let text = String::from_utf8(message.payload).unwrap();
                if message.topic == "note" {
                    honest.notes += 1;
                    assert_eq!(text, honest.notes.to_string(), "none is missed, none comes twice");
                } else {
                    assert_eq!(message.topic, format!("answers/{}", HONEST[who]));
                    honest.answered += 1;
                    assert_eq!(text, honest.answered.to_string());
                    longest = longest.max(step - honest.since);
                }
            }
            assert!(!self.net.broker.is_closing(honest.id), "nobody ends it");
            if honest.answered == honest.asked {
                honest.asked += 1;
                honest.since = step;
                let payload = honest.asked.to_string();
                self.net.publish(honest.id, "requests", &payload, Qos::AtLeastOnce, honest.asked);
            }
            longest = longest.max(step - honest.since);
        }
        longest
    }
}

#[test]
fn honest_clients_work_among_hostile_ones() {
    for seed in 1..=2 {
        let mut siege = Siege::new(seed);
        let mut longest = 0;
        for step in 0..3_000 {
            for _ in 0..4 {
                siege.attack();
            }
            siege.serve();
            longest = longest.max(siege.work(step));
            siege.net.pass(Duration::from_millis(10));
            let stats = siege.net.broker.stats();
            assert!(stats.bytes <= MEMORY + SHARE, "{stats:?} at step {step}");
        }
        let stats = siege.net.broker.stats();
        let asked: Vec<u16> = siege.honest.iter().map(|honest| honest.answered).collect();
        assert!(longest <= 30, "an answer took {longest} steps");
        assert!(asked.iter().all(|answered| *answered > 300), "{asked:?}");
        assert!(siege.notes > 100 && stats.evicted > 10, "{} notes, {stats:?}", siege.notes);
    }
}
