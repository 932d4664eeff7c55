//! Limits of all clients are shared out by user: a user with many client ids takes nothing from
//! others.

use super::*;

/// A broker whose clients log in as the part of their client id before the hyphen.
fn with_users(change: impl FnOnce(&mut Limits)) -> Net {
    let mut config = Config { requires_login: true, ..Config::default() };
    change(&mut config.limits);
    Net::new(config)
}

fn log_in(net: &mut Net, client_id: &str, options: ConnectOptions<'_>) -> ConnectionId {
    let id = net.try_connect(client_id, options);
    let user = client_id.split('-').next().map(Into::into);
    net.broker.handle_login(net.now, id, Ok(Admission { user, ..Admission::default() }));
    id
}

#[test]
fn user_with_many_client_ids_evicts_its_own_sessions() {
    let mut net = with_users(|limits| limits.sessions = 10);
    for at in 0..3 {
        let id = log_in(&mut net, &format!("honest-{at}"), PERSISTENT);
        net.subscribe(id, "kept", Qos::AtLeastOnce);
        net.close(id);
        net.advance(seconds(1));
    }
    for at in 0..100 {
        let id = log_in(&mut net, &format!("evil-{at}"), PERSISTENT);
        net.subscribe(id, "kept", Qos::AtLeastOnce);
        net.close(id);
    }
    for at in 0..3 {
        let back = log_in(&mut net, &format!("honest-{at}"), PERSISTENT);
        assert_eq!(net.receive(back), [Received::ConnAck(true, Reason::SUCCESS)]);
    }
}

/// Sessions of other users end only while these have more.
#[test]
fn user_with_the_most_sessions_evicts_no_session_of_others() {
    let mut net = with_users(|limits| limits.sessions = 4);
    for user in ["ann", "bob"] {
        let id = log_in(&mut net, user, PERSISTENT);
        net.close(id);
    }
    let evil: Vec<_> =
        (0..2).map(|at| log_in(&mut net, &format!("evil-{at}"), PERSISTENT)).collect();
    evil.iter().for_each(|id| assert_eq!(net.receive(*id).len(), 1));
    let refused = log_in(&mut net, "evil-2", PERSISTENT);
    assert_eq!(net.receive(refused), [Received::ConnAck(false, Reason::QUOTA_EXCEEDED)]);
    net.close(refused);
    for user in ["ann", "bob"] {
        let back = log_in(&mut net, user, PERSISTENT);
        assert_eq!(net.receive(back), [Received::ConnAck(true, Reason::SUCCESS)], "{user}");
    }
}

#[test]
fn client_takes_over_its_own_connection_at_the_limit() {
    let mut net = with_users(|limits| limits.connections = 3);
    let all = ["ann-1", "ann-2", "bob"].map(|client_id| log_in(&mut net, client_id, CLEAN));
    all.iter().for_each(|id| assert_eq!(net.receive(*id).len(), 1));
    let again = log_in(&mut net, "ann-1", CLEAN);
    assert_eq!(net.receive(again), [Received::ConnAck(false, Reason::SUCCESS)]);
    assert_eq!(net.receive(all[0]), [Received::Disconnect(Reason::SESSION_TAKEN_OVER)]);
    assert!(net.receive(all[1]).is_empty() && net.receive(all[2]).is_empty());
}

#[test]
fn rejected_retained_message_removes_no_other_message() {
    let mut net = with_users(|limits| limits.retained_memory = 20_000);
    let retain = |net: &mut Net, id, topic: &str, bytes: usize| {
        let payload = "x".repeat(bytes);
        let mut packet = publish(topic, &payload, Qos::AtLeastOnce, 1);
        packet.retain = true;
        net.send(id, Packet::Publish(packet));
        net.receive(id)
    };
    let [ann, bob, evil] = ["ann", "bob", "evil"].map(|user| log_in(&mut net, user, CLEAN));
    for (id, user) in [(ann, "ann"), (bob, "bob"), (evil, "evil")] {
        net.receive(id);
        for at in 0..if user == "evil" { 0 } else { 10 } {
            let reasons = retain(&mut net, id, &format!("{user}/{at}"), 400);
            assert_eq!(reasons, [Received::PubAck(1, Reason::NO_MATCHING_SUBSCRIBERS)]);
        }
    }
    let before = net.broker.stats();
    let reasons = retain(&mut net, evil, "evil/large", 12_000);
    assert_eq!(reasons, [Received::PubAck(1, Reason::QUOTA_EXCEEDED)]);
    assert_eq!(net.broker.stats().retained, before.retained);
}

/// Each session of the attacker uses less than that of the other user.
#[test]
fn memory_is_freed_by_the_user_that_uses_the_most_in_total() {
    let mut net = with_users(|limits| {
        limits.memory = 200_000;
        limits.session_memory = 50_000;
    });
    let publisher = log_in(&mut net, "publisher", CLEAN);
    net.receive(publisher);
    let fill = |net: &mut Net, client_id: &str, bytes: usize| {
        let id = log_in(net, client_id, PERSISTENT);
        net.subscribe(id, client_id, Qos::AtLeastOnce);
        net.close(id);
        net.publish(publisher, client_id, &"x".repeat(bytes), Qos::AtLeastOnce, 1);
        net.receive(publisher);
    };
    fill(&mut net, "honest-1", 40_000);
    for at in 0..50 {
        fill(&mut net, &format!("evil-{at}"), 8_000);
    }
    assert!(net.broker.stats().evicted > 20, "{:?}", net.broker.stats());
    let back = log_in(&mut net, "honest-1", PERSISTENT);
    let received = net.receive(back);
    assert_eq!(received[0], Received::ConnAck(true, Reason::SUCCESS));
    assert_eq!(received.len(), 2, "the message was kept");
}

#[test]
fn retained_memory_is_freed_by_the_user_that_uses_the_most() {
    let mut net = with_users(|limits| limits.retained_memory = 20_000);
    let retain = |net: &mut Net, id, topic: &str| {
        let mut packet = publish(topic, "some payload", Qos::AtLeastOnce, 1);
        packet.retain = true;
        net.send(id, Packet::Publish(packet));
        match net.receive(id)[..] {
            [Received::PubAck(1, reason)] => reason,
            ref other => panic!("{other:?}"),
        }
    };
    let evil = [1, 2].map(|at| log_in(&mut net, &format!("evil-{at}"), CLEAN));
    evil.iter().for_each(|id| _ = net.receive(*id));
    let mut count = 0;
    while !retain(&mut net, evil[count % 2], &format!("evil/{count}")).is_error() {
        count += 1;
    }
    evil.iter().for_each(|id| net.close(*id));
    // Another user gets half of the memory, though the first one has left.
    let honest = log_in(&mut net, "honest", CLEAN);
    net.receive(honest);
    let kept = (0..count).take_while(|at| {
        let reason = retain(&mut net, honest, &format!("honest/{at}"));
        !reason.is_error()
    });
    let kept = kept.count();
    assert!((count / 2 - 2..=count / 2 + 2).contains(&kept), "{kept} of {count}");
    let evicted = IncidentKind::RetainedEvicted;
    assert!(net.drain_incidents().iter().any(|incident| incident.kind == evicted));
    // The oldest are gone.
    for (topic, expected) in [("evil/0".to_owned(), 0), (format!("evil/{}", count - 1), 1)] {
        net.subscribe(honest, &topic, Qos::AtLeastOnce);
        net.advance(seconds(1));
        assert_eq!(net.receive_messages(honest).len(), expected, "{topic}");
    }
}

#[test]
fn client_displaces_one_of_the_user_with_the_most_connections() {
    let mut net = with_users(|limits| limits.connections = 4);
    let evil: Vec<_> = (0..4).map(|at| log_in(&mut net, &format!("evil-{at}"), CLEAN)).collect();
    evil.iter().for_each(|id| assert_eq!(net.receive(*id).len(), 1));
    let refused = log_in(&mut net, "evil-5", CLEAN);
    assert_eq!(net.receive(refused), [Received::ConnAck(false, Reason::SERVER_BUSY)]);
    net.close(refused);
    for (client_id, displaced) in [("honest-1", evil[3]), ("honest-2", evil[2])] {
        let id = log_in(&mut net, client_id, CLEAN);
        assert_eq!(net.receive(id), [Received::ConnAck(false, Reason::SUCCESS)]);
        assert_eq!(net.receive(displaced), [Received::Disconnect(Reason::QUOTA_EXCEEDED)]);
        net.close(displaced);
    }
    // Now both have two.
    let refused = log_in(&mut net, "honest-3", CLEAN);
    assert_eq!(net.receive(refused), [Received::ConnAck(false, Reason::SERVER_BUSY)]);
}

/// A session in the definition of the order of eviction.
struct Known {
    name: String,
    is_kept: bool,
    away_since: Option<Duration>,
}

impl Known {
    fn user(&self) -> &str {
        self.name.split('-').next().unwrap_or_default()
    }
}

/// The session that is evicted for a session of `user`, by a search of all sessions.
fn expected_victim(all: &[Known], user: &str) -> Option<usize> {
    let count = |user: &str| all.iter().filter(|one| one.user() == user).count();
    let may_end = |one: &Known| one.user() == user || count(one.user()) > count(user);
    let away = all.iter().enumerate().filter(|(_, one)| one.away_since.is_some() && may_end(one));
    let order = |(at, one): (usize, &Known)| {
        (core::cmp::Reverse(count(one.user())), one.is_kept, one.away_since, at)
    };
    away.map(order).min().map(|(.., at)| at)
}

#[test]
fn evicted_session_is_that_of_a_search_of_all_sessions() {
    const MAX: usize = 12;
    let mut net = with_users(|limits| limits.sessions = MAX);
    let mut random = 1_u64;
    let mut random = |below: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    // In the order of their creation.
    let (mut all, mut connected, mut evictions, mut refusals) = (Vec::new(), Vec::new(), 0, 0);
    for at in 0..2_000 {
        if random(4) == 0 {
            net.advance(seconds(1));
        }
        if !connected.is_empty() && random(2) == 0 {
            let (id, name): (ConnectionId, String) =
                connected.swap_remove(usize::try_from(random(connected.len() as u64)).unwrap());
            net.close(id);
            let one = all.iter_mut().find(|one: &&mut Known| one.name == name).unwrap();
            one.away_since = Some(net.now);
            continue;
        }
        let name = match all.iter().find(|one| one.away_since.is_some()) {
            Some(away) if random(4) == 0 => away.name.clone(),
            _ => format!(
                "{}-{at}",
                ["ann", "bob", "eve", "eve"][usize::try_from(random(4)).unwrap()]
            ),
        };
        let known = all.iter().position(|one| one.name == name);
        let mut expected = Ok(None);
        if known.is_none() && all.len() >= MAX {
            let user = name.split('-').next().unwrap();
            let victim = expected_victim(&all, user).ok_or(Reason::QUOTA_EXCEEDED);
            expected = victim.map(|victim| Some(all.remove(victim).name));
        }
        net.drain_incidents();
        let options =
            ConnectOptions { properties: &[Property::SessionExpiry(100_000)], ..PERSISTENT };
        let id = log_in(&mut net, &name, options);
        let gone = net.drain_incidents().into_iter();
        let gone = gone.filter(|one| one.kind == IncidentKind::SessionEvicted);
        let gone: Vec<_> = gone.filter_map(|one| one.client_id).collect();
        let received = net.receive(id);
        match expected {
            Err(reason) => {
                assert_eq!((received, gone), (vec![Received::ConnAck(false, reason)], vec![]));
                refusals += 1;
                net.close(id);
                continue;
            }
            Ok(victim) => {
                evictions += usize::from(victim.is_some());
                assert_eq!(gone, Vec::from_iter(victim), "for {name}");
                assert_eq!(received, [Received::ConnAck(known.is_some(), Reason::SUCCESS)]);
            }
        }
        let is_kept = random(3) == 0;
        if is_kept {
            net.subscribe(id, "kept", Qos::AtLeastOnce);
        }
        match known {
            Some(known) => {
                all[known].is_kept |= is_kept;
                all[known].away_since = None;
            }
            None => all.push(Known { name: name.clone(), is_kept, away_since: None }),
        }
        connected.push((id, name));
    }
    assert!(evictions > 100 && refusals > 10, "{evictions} evictions, {refusals} refusals");
}
