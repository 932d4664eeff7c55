//! The rules, by section.

mod clocks;
mod conditions;
mod duplicates;
mod expiry;
mod fences;
mod grammar;
mod order;
pub(crate) mod pages;
mod replies;
mod requests;
mod scan;
mod values;
mod versions;
mod watches;

use crate::case::Case;
use crate::trial::Stop;
use crate::vectors::{self, Vectors};

/// Builds the table of cases: name, source, function, rule.
macro_rules! table {
    ($($name:literal $source:ident $run:path, $rule:literal;)+) => {
        &[$(Case::new($name, crate::case::Source::$source, $rule, |trial| Box::pin($run(trial)))),+]
    };
}

/// All cases. A case comes after the cases whose rules it relies on.
pub static CASES: &[Case] = table! {
    "reply/topic" Spec replies::topic,
        "A reply arrives on the response topic, with the correlation data of the request";
    "reply/properties" Wire replies::properties,
        "A reply has QoS 1, __stat 200, and no property that deployed clients reject; not retained";
    "reply/any-topic" Wire replies::any_topic,
        "A store accepts response topics of any form";
    "reply/correlation" Spec replies::correlation,
        "Correlation data may contain any bytes and have any length";
    "reply/expiry" Choice replies::expiry,
        "A reply has the remaining message expiry of its request";

    "request/qos-0" Spec requests::qos_0,
        "A request at QoS 0 fails and changes nothing";
    "request/qos-2" Spec requests::qos_2,
        "A request at QoS 2 fails, if the store can see the QoS";
    "request/no-correlation" Choice requests::no_correlation,
        "A request without correlation data is refused and changes nothing";
    "request/no-response-topic" Choice requests::no_response_topic,
        "A request without a response topic is dropped";
    "request/topic-as-response" Spec requests::topic_as_response,
        "A request with the request topic as response topic disconnects the client";
    "request/reserved-response" Spec requests::reserved_response,
        "A request with a response topic reserved for notifications disconnects the client";
    "request/levels-of-response" Choice requests::levels_of_response,
        "A request with a response topic of over 200 levels, or in $, has no reply and no effect";
    "request/other-properties" Wire requests::other_properties,
        "Unknown user properties are ignored";
    "request/chunks" Choice requests::chunks,
        "A request in chunks (__chunk) is refused and changes nothing";

    "grammar/requests" Spec grammar::requests,
        "Every well-formed request is accepted";
    "grammar/tolerated" Choice grammar::tolerated,
        "Leading zeros are accepted, and options in any order";
    "grammar/any-case" Choice grammar::any_case,
        "Verbs and options are accepted in upper and lower case";
    "grammar/nex-argument" Choice grammar::nex_argument,
        "NEX with an argument compares with the argument";
    "grammar/resp3" Spec grammar::resp3,
        "A payload that is not an array of blob strings is a syntax error";
    "grammar/options" Spec grammar::options,
        "Unknown or contradictory options are a syntax error";
    "grammar/expiry-numbers" Choice grammar::expiry_numbers,
        "PX takes decimal digits with a value of at least 1; anything else is a syntax error";
    "grammar/verbs" Spec grammar::verbs,
        "An unknown verb is an unknown command";
    "grammar/arity" Spec grammar::arity,
        "Too few or too many elements are a wrong number of arguments";
    "grammar/empty-key" Spec grammar::empty_key,
        "An empty key is refused";
    "grammar/order" Choice grammar::order,
        "Errors are found in this order: grammar, verb, number of elements, options, key";
    "grammar/cut" Spec grammar::cut,
        "Each truncated request, and each request with an extra byte, is a syntax error";

    "value/set-get" Spec values::set_get,
        "GET returns the value that SET stored";
    "value/absent" Spec values::absent,
        "GET of an absent key returns $-1";
    "value/replaced" Spec values::replaced,
        "SET replaces a value";
    "value/empty" Spec values::empty,
        "A value may be empty";
    "value/binary" Spec values::binary,
        "Keys and values may contain any bytes, also CR and LF";
    "value/large" Wire values::large,
        "Keys of 6,500 bytes and values of 65,000 bytes are stored";
    "value/keys-differ" Spec values::keys_differ,
        "Keys differ by every byte, also by case";
    "value/del" Spec values::del,
        "DEL removes a key and returns the number of removed keys";
    "value/vdel" Spec values::vdel,
        "VDEL removes a key only if its value is equal";

    "condition/nx" Spec conditions::nx,
        "SET with NX is applied only if the key is absent";
    "condition/nex" Spec conditions::nex,
        "SET with NEX is applied only if the key is absent or has the same value";
    "condition/refused" Spec conditions::refused,
        "A SET that is not applied changes neither value nor version nor expiry";
    "condition/dialect" Wire conditions::dialect,
        "A write that is not applied returns :-1 to deployed clients, and -1 to specified ones";

    "version/of-set" Wire versions::of_set,
        "The reply to a SET has its version: milliseconds, counter, node id";
    "version/form" Choice versions::form,
        "Versions are written without padding";
    "version/grows" Spec versions::grows,
        "Each version is greater than all earlier versions, of any client and key";
    "version/past-request" Spec versions::past_request,
        "A version is greater than the __ts of the request";
    "version/past-token" Wire versions::past_token,
        "A version is not lower than the __ft of the request";
    "version/of-replies" Spec versions::of_replies,
        "Replies to GET, DEL and conditional SET have the version of the stored or removed value";
    "version/of-vdel" Choice versions::of_vdel,
        "The reply to a VDEL with a different value has the stored version";
    "version/none" Choice versions::none,
        "Replies about absent keys, replies to KEYNOTIFY and errors lack a version";

    "clock/missing" Spec clocks::missing,
        "A SET without __ts is refused";
    "clock/malformed" Spec clocks::malformed,
        "A malformed __ts is refused";
    "clock/padded" Wire clocks::padded,
        "Clock values may be padded with zeros";
    "clock/ahead" Spec clocks::ahead,
        "A __ts that is more than a minute ahead is refused";
    "clock/nearly-ahead" Spec clocks::nearly_ahead,
        "A __ts that is less than a minute ahead is accepted";
    "clock/behind" Spec clocks::behind,
        "A __ts that is far behind is accepted";
    "clock/refused" Spec clocks::refused,
        "A refused request does not advance the clock of the store";
    "clock/set-only" Choice clocks::set_only,
        "The store ignores the __ts of all verbs other than SET";

    "fence/unfenced" Spec fences::unfenced,
        "A key without a stored token accepts any write";
    "fence/required" Spec fences::required,
        "A key with a stored token refuses writes without a token";
    "fence/lower" Spec fences::lower,
        "A token that is lower than the stored one is refused";
    "fence/equal" Spec fences::equal,
        "A token that equals the stored one is accepted";
    "fence/higher" Spec fences::higher,
        "A token that is higher is accepted, and a SET stores it";
    "fence/numbers" Spec fences::numbers,
        "Tokens are compared as numbers, not as text";
    "fence/versions" Spec fences::versions,
        "The version of a lock is a valid token";
    "fence/gone-with-key" Spec fences::gone_with_key,
        "Removing a key removes its token";
    "fence/gone-with-expiry" Spec fences::gone_with_expiry,
        "The expiry of a key removes its token";
    "fence/not-stored" Choice fences::not_stored,
        "A SET that is not applied stores no token";
    "fence/ahead" Spec fences::ahead,
        "A token that is more than a minute ahead is refused";
    "fence/malformed" Spec fences::malformed,
        "A malformed token is refused";
    "fence/writes-only" Choice fences::writes_only,
        "GET and KEYNOTIFY are not fenced, and the store ignores their token";

    "order/grammar-timestamp" Choice order::grammar_timestamp,
        "Grammar is checked before timestamps";
    "order/timestamp-fence" Choice order::timestamp_fence,
        "__ts is checked before the token";
    "order/token-fence" Choice order::token_fence,
        "The form of a token is checked before the fence";
    "order/fence-condition" Choice order::fence_condition,
        "The fence is checked before the condition";

    "expiry/expires" Spec expiry::expires,
        "A value with PX is absent after its expiry, for every verb";
    "expiry/restarts" Spec expiry::restarts,
        "Each SET with PX restarts the expiry";
    "expiry/removed" Choice expiry::removed,
        "SET without PX removes the expiry";
    "expiry/refused" Spec expiry::refused,
        "A SET that is not applied does not change the expiry";

    "watch/set" Spec watches::set,
        "A SET notifies a registered client: topic, value, version";
    "watch/removed" Spec watches::removed,
        "DEL and VDEL notify a registered client, with the version of the removed value";
    "watch/expired" Wire watches::expired,
        "An expiry notifies a registered client";
    "watch/expired-version" Choice watches::expired_version,
        "The notification of an expiry has the version of the expired value";
    "watch/dialect" Wire watches::dialect,
        "A removal is DELETE in the deployed dialect, and DEL in the specified one";
    "watch/own" Spec watches::own,
        "A client is also notified of its writes";
    "watch/absent" Spec watches::absent,
        "An absent key can be watched";
    "watch/each" Spec watches::each,
        "Each change causes one notification, in the order of the changes";
    "watch/no-change" Spec watches::no_change,
        "A request that changes nothing causes no notification";
    "watch/again" Spec watches::again,
        "A second registration succeeds and does not duplicate notifications";
    "watch/stop" Spec watches::stop,
        "STOP ends a registration and returns the number of ended ones";
    "watch/before-stop" Wire watches::before_stop,
        "Notifications of changes before a STOP arrive before its reply";
    "watch/by-client" Spec watches::by_client,
        "A registration belongs to one client and one key";
    "watch/literal" Spec watches::literal,
        "KEYNOTIFY does not support wildcards";
    "watch/binary" Spec watches::binary,
        "Keys of any bytes can be watched";
    "watch/ends" Spec watches::ends,
        "A registration ends with its connection";
    "watch/direct" Wire watches::direct,
        "Registered clients are notified without a subscription";
    "watch/unsubscribed" Wire watches::unsubscribed,
        "STOP returns +OK although no notification had a subscriber, and :0 after that";

    "duplicate/set" Wire duplicates::set,
        "A redelivered SET is applied once and has the same reply";
    "duplicate/del" Wire duplicates::del,
        "A redelivered DEL removes once and has the same reply";
    "duplicate/notified-once" Wire duplicates::notified_once,
        "A redelivered SET causes one notification";
    "duplicate/get" Choice duplicates::get,
        "A redelivered GET reads again";
    "duplicate/watch" Choice duplicates::watch,
        "A redelivered KEYNOTIFY registers again";
    "duplicate/other-request" Choice duplicates::other_request,
        "A request with other content but the same correlation data is a new request";
    "duplicate/other-client" Wire duplicates::other_client,
        "A request with the same correlation data from another client is a new request";

    "scan/keys" Wire scan::keys,
        "SCAN lists the keys that match, and no others";
    "scan/nothing" Wire scan::nothing,
        "A listing without matches is one page without keys";
    "scan/patterns" Wire scan::patterns,
        "Patterns follow the Rust crate glob";
    "scan/pages" Wire scan::pages,
        "A listing that does not fit into a page continues in further pages, each key once";
    "scan/token-again" Wire scan::token_again,
        "A token may be sent again";
    "scan/during-writes" Wire scan::during_writes,
        "A key that exists during the whole listing is listed once, despite concurrent writes";
    "scan/grammar" Wire scan::grammar,
        "SCAN takes a pattern and an optional token";
    "scan/not-utf8" Choice scan::not_utf8,
        "A byte that is not UTF-8 matches like a character";
    "scan/no-pattern" Choice scan::no_pattern,
        "A pattern that the glob crate rejects is a syntax error";
    "scan/order" Choice scan::order,
        "Keys are listed in the order of their bytes";
    "scan/long-pattern" Choice scan::long_pattern,
        "A pattern that is longer than any key exceeds the quota";
    "scan/bad-token" Choice scan::bad_token,
        "An invalid token is a syntax error";
};

/// Reads the rows of a file of golden vectors.
fn rows(file: &str) -> Result<Vec<vectors::Case>, Stop> {
    Ok(Vectors::read(file)?.cases().to_vec())
}

/// The texts of `hlc-refused.txt` that every broker accepts as a user property.
fn malformed_clocks() -> Result<Vec<String>, Stop> {
    let texts: Result<Vec<String>, String> =
        rows("hlc-refused.txt")?.iter().map(|row| row.string("text")).collect();
    Ok(texts?.into_iter().filter(|text| !text.contains(char::is_control)).collect())
}
