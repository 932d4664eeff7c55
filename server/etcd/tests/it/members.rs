//! Several members of etcd, some of which are down.

use std::time::Duration;

use statestore_etcd::{EtcdJournal, Options};
use statestore_testkit::process::Port;

use crate::support::{Server, commit, contents, load, new_store, responses, restore, set};

#[tokio::test]
async fn one_member_that_responds_is_enough() {
    let Some(server) = Server::start().await else { return };
    let closed = [Port::free(), Port::free()];
    let [one, two] = closed.each_ref().map(|port| format!("http://127.0.0.1:{}", port.number()));
    let mut store = new_store();
    for (number, urls) in
        [[&*one, &two, &server.url()], [&one, &server.url(), &two]].into_iter().enumerate()
    {
        let mut journal = EtcdJournal::new(Options::new(urls)).unwrap();
        load(&mut journal).await.unwrap();
        for repeat in 0..5 {
            let number = 10 * number as u64 + repeat;
            commit(&mut journal, set(&mut store, number, b"a", b"1")).await.unwrap();
        }
        journal.leadership().resign().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_survive_a_dead_or_hanging_leader_of_etcd() {
    let Some(mut members) = Server::cluster().await else { return };
    let urls: Vec<String> = members.iter().map(Server::url).collect();
    let journal = |name| {
        let options = Options::new(&urls).name(name).lease(Duration::from_secs(20));
        EtcdJournal::new(options).unwrap()
    };
    let mut first = journal("first");
    load(&mut first).await.unwrap();
    let mut store = new_store();
    for (round, hangs) in [true, false].into_iter().enumerate() {
        let mut leader = 0;
        while !members[leader].is_leader().await {
            leader += 1;
        }
        match hangs {
            true => members[leader].freeze(true),
            false => members[leader].kill(),
        }
        for repeat in 0..20 {
            let number = 100 * round as u64 + repeat;
            commit(&mut first, set(&mut store, number, &number.to_be_bytes(), b"v")).await.unwrap();
            responses(&mut store);
        }
        match hangs {
            true => members[leader].freeze(false),
            false => members[leader].restart().await,
        }
    }
    let head = members[0].head().await;
    assert_eq!(head, (1, 41), "each commit once");
    first.leadership().resign().await.unwrap();
    let mut second = journal("second");
    assert_eq!(contents(&restore(&load(&mut second).await.unwrap())), contents(&store));
}
