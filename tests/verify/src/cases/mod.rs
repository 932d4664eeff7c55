//! The rules, section by section.

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

/// Makes the table of cases: name, source, rule, function.
macro_rules! table {
    ($($name:literal $source:ident $rule:literal $run:path;)+) => {
        &[$(Case::new($name, crate::case::Source::$source, $rule, |trial| Box::pin($run(trial)))),+]
    };
}

/// Every case, in the order in which they are best run: what others build on comes first.
pub static CASES: &[Case] = table! {
    "reply/topic" Page "The reply comes on the response topic, with the correlation data of the request" replies::topic;
    "reply/properties" Wire "A reply is published at QoS 1, not retained, with __stat 200, and nothing that deployed clients reject" replies::properties;
    "reply/any-topic" Wire "Response topics have no form that a store may demand" replies::any_topic;
    "reply/correlation" Page "Correlation data are any bytes, of any length" replies::correlation;
    "reply/expiry" Choice "A reply carries what is left of its request's message expiry" replies::expiry;

    "request/qos-0" Page "A request at QoS 0 fails, and changes nothing" requests::qos_0;
    "request/qos-2" Page "A request at QoS 2 fails, where the store can tell it" requests::qos_2;
    "request/no-correlation" Choice "A request without correlation data is refused, and changes nothing" requests::no_correlation;
    "request/no-response-topic" Choice "A request without response topic is dropped" requests::no_response_topic;
    "request/topic-as-response" Page "Who names the request topic as response topic is disconnected, and changes nothing" requests::topic_as_response;
    "request/reserved-response" Page "Who names a response topic that is kept for notifications is disconnected, and changes nothing" requests::reserved_response;
    "request/levels-of-response" Choice "A response topic of more than 200 levels, or that begins with $, is not answered, and nothing changes" requests::levels_of_response;
    "request/other-properties" Wire "User properties that mean nothing here are ignored" requests::other_properties;

    "grammar/requests" Page "Every well-formed request is understood" grammar::requests;
    "grammar/tolerated" Choice "Leading zeros, and options in any order, are understood" grammar::tolerated;
    "grammar/any-case" Choice "Verbs and options are understood in any case, as in the examples of the page" grammar::any_case;
    "grammar/nex-argument" Choice "NEX compares with an argument, where it has one" grammar::nex_argument;
    "grammar/resp3" Page "What is no array of blob strings is a syntax error" grammar::resp3;
    "grammar/options" Page "Options that do not exist, or contradict each other, are a syntax error" grammar::options;
    "grammar/expiry-numbers" Choice "PX takes decimal digits, 1 at least; anything else is a syntax error" grammar::expiry_numbers;
    "grammar/verbs" Page "A verb that does not exist is an unknown command" grammar::verbs;
    "grammar/arity" Page "Too few or too many elements are a wrong number of arguments" grammar::arity;
    "grammar/empty-key" Page "An empty key is refused" grammar::empty_key;
    "grammar/order" Choice "Of two faults grammar comes first, then verb, number of elements, options, key" grammar::order;
    "grammar/cut" Page "Each cut of a request, and each byte more, is a syntax error" grammar::cut;

    "value/set-get" Page "GET has the value that SET has set" values::set_get;
    "value/absent" Page "GET of a key that does not exist says so" values::absent;
    "value/replaced" Page "SET replaces a value" values::replaced;
    "value/empty" Page "An empty value is a value" values::empty;
    "value/binary" Page "Keys and values are any bytes, CR and LF among them" values::binary;
    "value/large" Wire "Keys of 6,500 bytes and values of 65,000 are stored" values::large;
    "value/keys-differ" Page "Keys differ by every byte, also by case" values::keys_differ;
    "value/del" Page "DEL removes, and counts what it has removed" values::del;
    "value/vdel" Page "VDEL removes a value that is equal, and no other" values::vdel;

    "condition/nx" Page "SET with NX is applied only where there is no value" conditions::nx;
    "condition/nex" Page "SET with NEX is applied where there is no value, or the same" conditions::nex;
    "condition/refused" Page "A SET that is not applied changes neither value nor version nor expiry" conditions::refused;
    "condition/dialect" Wire "What was not applied is :-1 to deployed clients, and -1 to those of the page" conditions::dialect;

    "version/of-set" Wire "The reply to a SET has its version: milliseconds, counter, node id" versions::of_set;
    "version/form" Choice "Versions are written without padding" versions::form;
    "version/grows" Page "Each version is greater than all before, of any client and key" versions::grows;
    "version/past-request" Page "A version is greater than the request's __ts" versions::past_request;
    "version/past-token" Wire "A version is not lower than the request's __ft" versions::past_token;
    "version/of-replies" Page "GET and what is not applied have the stored version, DEL that of what it removed" versions::of_replies;
    "version/of-vdel" Choice "VDEL of another value has the stored version" versions::of_vdel;
    "version/none" Choice "There is no version where there is no value: absent, nothing removed, KEYNOTIFY, errors" versions::none;

    "clock/missing" Page "SET needs __ts" clocks::missing;
    "clock/malformed" Page "A __ts that is no clock value is refused" clocks::malformed;
    "clock/padded" Wire "Clock values may be padded with zeros" clocks::padded;
    "clock/ahead" Page "A __ts that is more than a minute ahead is refused" clocks::ahead;
    "clock/nearly-ahead" Page "A __ts that is less than a minute ahead is not" clocks::nearly_ahead;
    "clock/behind" Page "A __ts that is far behind is not" clocks::behind;
    "clock/refused" Page "What is refused moves no clock" clocks::refused;
    "clock/of-set-alone" Choice "Only SET has its __ts read" clocks::of_set_alone;

    "fence/unfenced" Page "Where no token is stored, any write is accepted" fences::unfenced;
    "fence/required" Page "Where a token is stored, writes without one are refused" fences::required;
    "fence/lower" Page "A token that is lower than the stored one is refused" fences::lower;
    "fence/equal" Page "A token that equals the stored one is accepted" fences::equal;
    "fence/higher" Page "A token that is higher is accepted, and a SET stores it" fences::higher;
    "fence/numbers" Page "Tokens are compared as numbers, not as text" fences::numbers;
    "fence/versions" Page "The version of a lock is a token" fences::versions;
    "fence/gone-with-key" Page "The token goes with its key, when that is removed" fences::gone_with_key;
    "fence/gone-with-expiry" Page "The token goes with its key, when that expires" fences::gone_with_expiry;
    "fence/not-stored" Choice "A SET that is not applied stores no token" fences::not_stored;
    "fence/ahead" Page "A token that is more than a minute ahead is refused" fences::ahead;
    "fence/malformed" Page "A token that is no clock value is refused" fences::malformed;
    "fence/of-writes-alone" Choice "GET and KEYNOTIFY are never fenced, and their token is not read" fences::of_writes_alone;

    "order/grammar-timestamp" Choice "Grammar is checked before timestamps" order::grammar_timestamp;
    "order/timestamp-fence" Choice "__ts is checked before the token" order::timestamp_fence;
    "order/token-fence" Choice "A malformed token is found before a fence is looked at" order::token_fence;
    "order/fence-condition" Choice "The fence is checked before the condition" order::fence_condition;

    "expiry/expires" Page "A value with PX is gone when its time is over, for every verb" expiry::expires;
    "expiry/counts-anew" Page "Each SET with PX counts anew" expiry::counts_anew;
    "expiry/removed" Choice "SET without PX removes the expiry" expiry::removed;
    "expiry/refused" Page "A SET that is not applied leaves the expiry" expiry::refused;

    "watch/set" Page "A client that watches is told of a SET: topic, value, version" watches::set;
    "watch/removed" Page "It is told of DEL and VDEL, with the version of what was removed" watches::removed;
    "watch/expired" Wire "It is told of an expiry" watches::expired;
    "watch/expired-version" Choice "What expires is told with its version" watches::expired_version;
    "watch/dialect" Wire "A removal is DELETE to deployed clients, and DEL to those of the page" watches::dialect;
    "watch/own" Page "It is told of its own writes" watches::own;
    "watch/absent" Page "A key that does not exist can be watched" watches::absent;
    "watch/each" Page "It is told of each change, in their order" watches::each;
    "watch/no-change" Page "It is told of nothing that changes nothing" watches::no_change;
    "watch/again" Page "To register again is no error, and doubles nothing" watches::again;
    "watch/stop" Page "STOP ends it, and counts what it has ended" watches::stop;
    "watch/before-stop" Wire "What was caused before a STOP comes before its reply" watches::before_stop;
    "watch/by-client" Page "A registration is of one client and one key" watches::by_client;
    "watch/literal" Page "KEYNOTIFY takes no wildcards" watches::literal;
    "watch/binary" Page "Keys of any bytes can be watched" watches::binary;
    "watch/ends" Page "A registration ends with its connection" watches::ends;
    "watch/direct" Wire "Clients that subscribe to no notifications are told all the same" watches::direct;
    "watch/unheard" Wire "STOP gets +OK although no notification had a subscriber, and :0 after that" watches::unheard;

    "duplicate/set" Wire "A SET that is delivered twice is applied once, with one answer" duplicates::set;
    "duplicate/del" Wire "A DEL that is delivered twice removes once, with one answer" duplicates::del;
    "duplicate/told-once" Wire "A SET that is delivered twice is told once" duplicates::told_once;
    "duplicate/get" Choice "A GET that is delivered again reads again" duplicates::get;
    "duplicate/watch" Choice "A KEYNOTIFY that is delivered again registers again" duplicates::watch;
    "duplicate/other-request" Choice "Correlation data that come again with another request are another request" duplicates::other_request;
    "duplicate/other-client" Wire "The same correlation data of another client are another request" duplicates::other_client;

    "scan/keys" Wire "SCAN lists the keys that match, and no others" scan::keys;
    "scan/nothing" Wire "Where nothing matches, a page without keys ends the listing" scan::nothing;
    "scan/patterns" Wire "Patterns are those of the glob crate of Rust" scan::patterns;
    "scan/pages" Wire "What does not fit into a page comes in others, each key once" scan::pages;
    "scan/token-again" Wire "A token may be sent again" scan::token_again;
    "scan/meanwhile" Wire "A key that is there throughout is listed once, whatever is set and removed meanwhile" scan::meanwhile;
    "scan/grammar" Wire "SCAN takes a pattern, and a token if there is one" scan::grammar;
    "scan/no-text" Wire "A key that is not UTF-8 is not listed" scan::no_text;
    "scan/no-pattern" Choice "What the glob crate takes for no pattern is a syntax error" scan::no_pattern;
    "scan/order" Choice "Keys come in the order of their bytes" scan::order;
    "scan/long-pattern" Choice "A pattern that is longer than any key exceeds the quota" scan::long_pattern;
    "scan/bad-token" Choice "A token that is none is a syntax error" scan::bad_token;
};

/// The rows of a file of golden vectors.
fn rows(file: &str) -> Result<Vec<vectors::Case>, Stop> {
    Ok(Vectors::read(file)?.cases().to_vec())
}

/// The texts of `hlc-refused.txt` that a user property can have with every broker.
fn clockless() -> Result<Vec<String>, Stop> {
    let texts: Result<Vec<String>, String> =
        rows("hlc-refused.txt")?.iter().map(|row| row.string("text")).collect();
    Ok(texts?.into_iter().filter(|text| !text.contains(char::is_control)).collect())
}
