//! Calls to etcd, each with a time by which it is over.

use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, KeyValue, KvClient, LeaseClient,
    PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse, WatchClient, WatchOptions, WatchStream,
};

use crate::error::Failure;
use crate::keys::Keys;
use crate::options::Options;

/// A page of keys may be larger than what the library reads unless it is told otherwise.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A connection is dead that leaves a ping without an answer for so long. etcd closes those that ping more than once in 5 s.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a page of keys may take, which is the one call that is much work for etcd.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The members of etcd.
#[derive(Clone)]
pub(crate) struct Etcd {
    kv: KvClient,
    lease: LeaseClient,
    watch: WatchClient,
    endpoints: Box<str>,
    prefix: Box<str>,
    timeout: Duration,
}

/// Some keys with their values, as they were at one revision.
pub(crate) struct Page {
    pub(crate) entries: Vec<KeyValue>,
    /// Whether there are more behind them.
    pub(crate) more: bool,
}

/// Keys that were asked for together, as they are.
pub(crate) struct Found {
    /// In the order in which they were asked for.
    pub(crate) entries: Vec<Option<KeyValue>>,
    /// The revision of etcd then.
    pub(crate) revision: i64,
}

impl Etcd {
    /// Does not wait for a connection, unless there is a user, who must be let in.
    pub(crate) async fn connect(options: &Options) -> Result<Self, Failure> {
        let (endpoints, prefix) = (options.shown(), options.prefix.clone().into_boxed_str());
        // Several of them fit into the time for which a leader may go on without etcd.
        let timeout = (options.lease / 4).min(Duration::from_secs(2));
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(timeout)
            .with_keep_alive(PING_EVERY, PING_TIMEOUT)
            .with_keep_alive_while_idle(true)
            // A member that has no leader must not look like one that has nothing new.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &options.user {
            connect = connect.with_user(name, password);
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &options.tls {
            connect = connect.with_tls(crate::certificates::read(tls)?);
        }
        let connecting = Client::connect(&options.endpoints[..], Some(connect));
        let client = match tokio::time::timeout(timeout, connecting).await {
            Ok(client) => client.map_err(|error| Failure::of(&error, &endpoints, &prefix))?,
            Err(_) => return Err(Failure::TimedOut { endpoints, ms: timeout.as_millis() }),
        };
        Ok(Self {
            kv: client.kv_client().max_decoding_message_size(ANSWER_BYTES_MAX),
            lease: client.lease_client(),
            watch: client.watch_client().max_decoding_message_size(ANSWER_BYTES_MAX),
            endpoints,
            prefix,
            timeout,
        })
    }

    /// What one call may take.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The endpoints for a message.
    pub(crate) fn endpoints(&self) -> &str {
        &self.endpoints
    }

    /// These keys as they are now, whichever member is asked.
    pub(crate) async fn find(&self, keys: &[Vec<u8>]) -> Result<Found, Failure> {
        let gets = keys.iter().map(|key| TxnOp::get(key.clone(), None));
        let reply = self.txn(Txn::new().and_then(gets.collect::<Vec<_>>()), self.timeout).await?;
        let entries = found(&reply);
        let revision = reply.header().map_or(0, etcd_client::ResponseHeader::revision);
        Ok(Found { entries, revision })
    }

    /// Whether there is any key in this range.
    pub(crate) async fn any(&self, (from, end): (Vec<u8>, Vec<u8>)) -> Result<bool, Failure> {
        let options = GetOptions::new().with_range(end).with_limit(1).with_keys_only();
        let mut kv = self.kv.clone();
        let found = self.within(self.timeout, kv.get(from, Some(options))).await?;
        Ok(!found.kvs().is_empty())
    }

    /// Some keys of a range, in order, as they were at this revision.
    pub(crate) async fn page(
        &self,
        (from, end): (Vec<u8>, Vec<u8>),
        limit: i64,
        revision: i64,
    ) -> Result<Page, Failure> {
        let options = GetOptions::new().with_range(end).with_limit(limit).with_revision(revision);
        let mut kv = self.kv.clone();
        let timeout = PAGE_TIMEOUT.max(self.timeout);
        let mut found = self.within(timeout, kv.get(from, Some(options))).await?;
        Ok(Page { more: found.more(), entries: found.take_kvs() })
    }

    /// One transaction, once. It may take effect also when this fails.
    pub(crate) async fn txn(&self, txn: Txn, timeout: Duration) -> Result<TxnResponse, Failure> {
        let mut kv = self.kv.clone();
        self.within(timeout, kv.txn(txn)).await
    }

    /// Puts this key under a lease unless it is there; whether it is there under that lease now.
    pub(crate) async fn put_once(
        &self,
        key: &[u8],
        value: Vec<u8>,
        lease: i64,
    ) -> Result<bool, Failure> {
        let options = PutOptions::new().with_lease(lease);
        let txn = Txn::new()
            .when([Compare::create_revision(key, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key, value, Some(options))])
            .or_else([TxnOp::get(key, None)]);
        let reply = self.txn(txn, self.timeout).await?;
        let owner = found(&reply).into_iter().flatten().next().map(|entry| entry.lease());
        Ok(reply.succeeded() || owner == Some(lease))
    }

    /// Changes in this range, from this revision on.
    pub(crate) async fn watch(&self, keys: &Keys, revision: i64) -> Result<WatchStream, Failure> {
        let (from, end) = keys.range();
        // Without fragments what happened while this side was away would come in one piece.
        let options = WatchOptions::new()
            .with_range(end)
            .with_start_revision(revision)
            .with_progress_notify()
            .with_fragment();
        let mut watch = self.watch.clone();
        self.within(self.timeout, watch.watch(from, Some(options))).await
    }

    /// A lease of so many seconds; its number, and how long etcd grants it for.
    pub(crate) async fn grant(&self, ttl: Duration) -> Result<(i64, Duration), Failure> {
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let mut lease = self.lease.clone();
        let granted = self.within(self.timeout, lease.grant(seconds, None)).await?;
        Ok((granted.id(), Duration::from_secs(granted.ttl().unsigned_abs())))
    }

    /// Renews a lease; fails with [`Failure::Lost`] when it is not there any more.
    pub(crate) async fn renew(&self, id: i64, timeout: Duration) -> Result<(), Failure> {
        let mut lease = self.lease.clone();
        let renewed = tokio::time::timeout(timeout, lease.keep_alive(id)).await;
        match renewed {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(Error::LeaseKeepAliveError(says))) if says.contains("not found") => {
                Err(Failure::Lost("etcd has ended the lease".to_owned()))
            }
            Ok(Err(error)) => Err(self.failure(&error)),
            Err(_) => Err(self.timed_out(timeout)),
        }
    }

    /// Ends a lease, and with it what was put under it.
    pub(crate) async fn revoke(&self, id: i64) -> Result<(), Failure> {
        let mut lease = self.lease.clone();
        self.within(self.timeout, lease.revoke(id)).await.map(|_| ())
    }

    pub(crate) fn failure(&self, error: &Error) -> Failure {
        Failure::of(error, &self.endpoints, &self.prefix)
    }

    fn timed_out(&self, after: Duration) -> Failure {
        Failure::TimedOut { endpoints: self.endpoints.clone(), ms: after.as_millis() }
    }

    async fn within<T>(
        &self,
        timeout: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(timeout, call).await {
            Ok(done) => done.map_err(|error| self.failure(&error)),
            Err(_) => Err(self.timed_out(timeout)),
        }
    }
}

/// What the reads of a transaction have found, in their order.
pub(crate) fn found(reply: &TxnResponse) -> Vec<Option<KeyValue>> {
    let reads = reply.op_responses().into_iter().filter_map(|done| match done {
        TxnOpResponse::Get(mut read) => Some(read.take_kvs().into_iter().next()),
        _ => None,
    });
    reads.collect()
}
