//! Calls to etcd, each with a time limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmType, Client, Compare, CompareOp, ConnectOptions, Error, GetOptions,
    KeyValue, KvClient, LeaseClient, MaintenanceClient, PutOptions, Txn, TxnOp, TxnOpResponse,
    TxnResponse, WatchClient, WatchOptions, WatchStream,
};

use tokio::sync::OnceCell;

use crate::error::Failure;
use crate::keys::Keys;
use crate::options::Options;

/// Maximum size of a message from etcd. The default of the client library is too small for a page
/// of keys.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Interval of pings, and the time after which a connection without a reply is closed. etcd closes
/// connections that ping more often than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Upper limit for the time of all calls but these two.
const TIMEOUT_MAX: Duration = Duration::from_secs(2);

/// Time limit for logging in to a member. Hashing the password is slow by design.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for reading a page of keys, the only expensive call for etcd.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// gRPC status code `NOT_FOUND`.
const NOT_FOUND: i32 = 5;

/// Returns whether the text of a keep-alive error means that the lease does not exist.
///
/// A keep-alive of a missing lease succeeds with a TTL of zero. The client library converts that
/// into an error that has a text and no code.
fn is_lease_gone(text: &str) -> bool {
    text.contains("not found")
}

/// The members of etcd. All calls go to one member; after a failure, to the next.
///
/// The client library would distribute calls over all members, so a member that hangs would delay
/// its share of them.
#[derive(Clone)]
pub(crate) struct Etcd(Arc<Members>);

struct Members {
    members: Vec<Member>,
    current: AtomicUsize,
    connect: ConnectOptions,
    endpoints: Box<str>,
    prefix: Box<str>,
    timeout: Duration,
}

struct Member {
    url: String,
    clients: OnceCell<MemberClients>,
}

/// Clients of one member.
#[derive(Clone)]
struct MemberClients {
    kv: KvClient,
    lease: LeaseClient,
    watch: WatchClient,
    maintenance: MaintenanceClient,
}

/// Consecutive keys with their values at one revision.
pub(crate) struct Page {
    pub(crate) entries: Vec<KeyValue>,
    /// The range has more keys after these.
    pub(crate) more: bool,
}

/// Result of [`Etcd::find`].
pub(crate) struct Found {
    /// Entries in the order of the requested keys.
    pub(crate) entries: Vec<Option<KeyValue>>,
    /// Revision of etcd at which they were read.
    pub(crate) revision: i64,
}

impl Etcd {
    /// Reads the certificates. The first call connects.
    pub(crate) fn new(options: &Options) -> Result<Self, Failure> {
        // A leader can make several attempts before its lease expires.
        let timeout = (options.lease / 4).min(TIMEOUT_MAX);
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(timeout)
            .with_keep_alive(PING_EVERY, PING_TIMEOUT)
            .with_keep_alive_while_idle(true)
            // Without this, a watch at a member that has lost the majority would just stay silent.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &options.user {
            connect = connect.with_user(name, password);
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &options.tls {
            connect = connect.with_tls(crate::certificates::read(tls)?);
        }
        let member = |url: &String| Member { url: url.clone(), clients: OnceCell::new() };
        Ok(Self(Arc::new(Members {
            members: options.endpoints.iter().map(member).collect(),
            current: AtomicUsize::new(0),
            connect,
            endpoints: options.shown(),
            prefix: options.prefix.clone().into(),
            timeout,
        })))
    }

    /// Time limit of one call.
    pub(crate) fn timeout(&self) -> Duration {
        self.0.timeout
    }

    /// Endpoints, for messages.
    pub(crate) fn endpoints(&self) -> &str {
        &self.0.endpoints
    }

    /// Number of members.
    pub(crate) fn members(&self) -> usize {
        self.0.members.len()
    }

    /// Reads the latest values of these keys in one linearizable transaction.
    pub(crate) async fn find(&self, keys: &[Vec<u8>]) -> Result<Found, Failure> {
        let gets = keys.iter().map(|key| TxnOp::get(key.clone(), None));
        let reply = self.txn(Txn::new().and_then(gets.collect::<Vec<_>>()), self.0.timeout).await?;
        let entries = get_results(&reply);
        let revision = reply.header().map_or(0, etcd_client::ResponseHeader::revision);
        Ok(Found { entries, revision })
    }

    /// Returns whether this range contains a key.
    pub(crate) async fn has_keys(&self, (from, end): (Vec<u8>, Vec<u8>)) -> Result<bool, Failure> {
        let options = GetOptions::new().with_range(end).with_limit(1).with_keys_only();
        let get = async |mut clients: MemberClients| clients.kv.get(from, Some(options)).await;
        let found = self.call(self.0.timeout, get).await?;
        Ok(!found.kvs().is_empty())
    }

    /// Reads the first keys of a range, in order, as they were at this revision.
    pub(crate) async fn page(
        &self,
        (from, end): (Vec<u8>, Vec<u8>),
        limit: i64,
        revision: i64,
    ) -> Result<Page, Failure> {
        let options = GetOptions::new().with_range(end).with_limit(limit).with_revision(revision);
        let get = async |mut clients: MemberClients| clients.kv.get(from, Some(options)).await;
        let mut found = self.call(PAGE_TIMEOUT, get).await?;
        Ok(Page { more: found.more(), entries: found.take_kvs() })
    }

    /// Sends a transaction once. It may take effect even if this returns an error.
    pub(crate) async fn txn(&self, txn: Txn, timeout: Duration) -> Result<TxnResponse, Failure> {
        self.call(timeout, async |mut clients: MemberClients| clients.kv.txn(txn).await).await
    }

    /// Puts this key with a lease, unless it exists with another lease. Returns whether it has this
    /// lease now. A key without a lease is replaced: no store has written it, and it would never
    /// expire.
    pub(crate) async fn put_leader(
        &self,
        key: &[u8],
        value: Vec<u8>,
        lease: i64,
    ) -> Result<bool, Failure> {
        let options = PutOptions::new().with_lease(lease);
        let txn = Txn::new()
            .when([Compare::create_revision(key, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key, &value[..], Some(options.clone()))])
            .or_else([TxnOp::get(key, None)]);
        let reply = self.txn(txn, self.0.timeout).await?;
        let Some(entry) = get_results(&reply).into_iter().flatten().next() else {
            return Ok(reply.succeeded());
        };
        if entry.lease() != 0 {
            return Ok(entry.lease() == lease);
        }
        let unchanged = Compare::mod_revision(key, CompareOp::Equal, entry.mod_revision());
        let put = TxnOp::put(key, value, Some(options));
        let txn = Txn::new().when([unchanged]).and_then([put]);
        Ok(self.txn(txn, self.0.timeout).await?.succeeded())
    }

    /// Watches all keys of the store, from this revision on.
    pub(crate) async fn watch(&self, keys: &Keys, revision: i64) -> Result<WatchStream, Failure> {
        let (from, end) = keys.range();
        // Without fragments, all changes since that revision would arrive in one message.
        let options = WatchOptions::new()
            .with_range(end)
            .with_start_revision(revision)
            .with_progress_notify()
            .with_fragment();
        let watch =
            async |mut clients: MemberClients| clients.watch.watch(from, Some(options)).await;
        self.call(self.0.timeout, watch).await
    }

    /// Requests a lease. Returns its id, and the time for which etcd grants it.
    pub(crate) async fn grant(&self, ttl: Duration) -> Result<(i64, Duration), Failure> {
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let grant = async |mut clients: MemberClients| clients.lease.grant(seconds, None).await;
        let granted = self.call(self.0.timeout, grant).await?;
        Ok((granted.id(), Duration::from_secs(granted.ttl().unsigned_abs())))
    }

    /// Renews a lease; returns `false` if it does not exist any more.
    pub(crate) async fn renew(&self, id: i64, timeout: Duration) -> Result<bool, Failure> {
        let renew = async |mut clients: MemberClients| match clients.lease.keep_alive(id).await {
            Err(Error::LeaseKeepAliveError(text)) if is_lease_gone(&text) => Ok(false),
            renewed => renewed.map(|_| true),
        };
        self.call(timeout, renew).await
    }

    /// Revokes a lease, which deletes the keys attached to it.
    pub(crate) async fn revoke(&self, id: i64) -> Result<(), Failure> {
        let revoke = async |mut clients: MemberClients| match clients.lease.revoke(id).await {
            Err(Error::GRpcStatus(status)) if i32::from(status.code()) == NOT_FOUND => Ok(()),
            revoked => revoked.map(|_| ()),
        };
        self.call(self.0.timeout, revoke).await
    }

    /// Returns the remaining time of a lease; zero if it does not exist.
    pub(crate) async fn lease_left(&self, id: i64) -> Result<Duration, Failure> {
        let time_to_live =
            async |mut clients: MemberClients| clients.lease.time_to_live(id, None).await;
        let seconds = self.call(self.0.timeout, time_to_live).await?.ttl();
        Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    }

    /// Returns the active alarms, each with the member that has raised it, and the endpoints that
    /// do not respond.
    pub(crate) async fn health(&self) -> (Vec<String>, Vec<String>) {
        let (mut alarms, mut silent) = (Vec::new(), Vec::new());
        for member in &self.0.members {
            let request = async {
                let clients = MemberClients::connect(&member.url, &self.0.connect).await?;
                clients.maintenance.clone().status().await?;
                clients.maintenance.clone().alarm(AlarmAction::Get, AlarmType::None, None).await
            };
            match self.with_timeout(self.0.timeout, request).await {
                Ok(response) => alarms.extend(response.alarms().iter().map(|alarm| {
                    let kind = match alarm.alarm() {
                        AlarmType::Nospace => "NOSPACE",
                        AlarmType::Corrupt => "CORRUPT",
                        AlarmType::None => "unknown alarm",
                    };
                    format!("{kind} at member {:x}", alarm.member_id())
                })),
                // The member responds, although this user may not request its status.
                Err(Failure::Denied { .. } | Failure::Unauthenticated(_)) => {}
                Err(_) => silent.push(member.url.clone()),
            }
        }
        alarms.sort();
        alarms.dedup();
        (alarms, silent)
    }

    pub(crate) fn failure(&self, error: &Error) -> Failure {
        Failure::from_client(error, &self.0.endpoints, &self.0.prefix)
    }

    /// Calls the current member. After a transient failure, the next call goes to the next member.
    async fn call<T>(
        &self,
        timeout: Duration,
        call: impl AsyncFnOnce(MemberClients) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let Members { members, current, connect, .. } = &*self.0;
        let turn = current.load(Ordering::Relaxed);
        let called = async {
            let member = members.get(turn % members.len().max(1));
            let member = member.ok_or_else(|| Failure::Other("no endpoint".to_owned()))?;
            let connect =
                member.clients.get_or_try_init(|| MemberClients::connect(&member.url, connect));
            let clients = self.with_timeout(LOGIN_TIMEOUT.max(timeout), connect).await?;
            self.with_timeout(timeout, call(clients.clone())).await
        };
        let called = called.await;
        if called.as_ref().is_err_and(Failure::is_transient) {
            // If several calls fail at the same time, only one of them selects the next member.
            let next = turn.wrapping_add(1);
            let _ = current.compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        called
    }

    async fn with_timeout<T>(
        &self,
        timeout: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(timeout, call).await {
            Ok(called) => called.map_err(|error| self.failure(&error)),
            Err(_) => {
                let (endpoints, ms) = (self.0.endpoints.clone(), timeout.as_millis());
                Err(Failure::TimedOut { endpoints, ms })
            }
        }
    }
}

impl MemberClients {
    /// Creates the clients. Waits for a connection only if a user must log in.
    async fn connect(url: &str, options: &ConnectOptions) -> Result<Self, Error> {
        let client = Client::connect([url], Some(options.clone())).await?;
        Ok(Self {
            kv: client.kv_client().max_decoding_message_size(MESSAGE_BYTES_MAX),
            lease: client.lease_client(),
            maintenance: client.maintenance_client(),
            watch: client.watch_client().max_decoding_message_size(MESSAGE_BYTES_MAX),
        })
    }
}

/// Returns the results of the reads of a transaction, in their order.
pub(crate) fn get_results(reply: &TxnResponse) -> Vec<Option<KeyValue>> {
    let reads = reply.op_responses().into_iter().filter_map(|done| match done {
        TxnOpResponse::Get(mut read) => Some(read.take_kvs().into_iter().next()),
        _ => None,
    });
    reads.collect()
}
