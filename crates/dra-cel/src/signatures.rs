//! The functions of Kubernetes' CEL environment: what they take and what they give.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::types::Type;

/// One function for each line: `receiver.name(arguments) result`, or `name(arguments) result` without a receiver.
/// `x` is any type, and as a result the type of the receiver's elements.
const FUNCTIONS: &str = "
string.contains(string) bool
string.startsWith(string) bool
string.endsWith(string) bool
string.matches(string) bool
matches(string,string) bool
string.charAt(int) string
string.indexOf(string) int
string.indexOf(string,int) int
string.lastIndexOf(string) int
string.lastIndexOf(string,int) int
string.lowerAscii() string
string.upperAscii() string
string.replace(string,string) string
string.replace(string,string,int) string
string.split(string) list(string)
string.split(string,int) list(string)
string.substring(int) string
string.substring(int,int) string
string.trim() string
list(string).join() string
list(string).join(string) string
strings.quote(string) string
string.find(string) string
string.findAll(string) list(string)
string.findAll(string,int) list(string)
list.isSorted() bool
list.sum() x
list.min() x
list.max() x
list.indexOf(x) int
list.lastIndexOf(x) int
list.slice(int,int) list
list.flatten() dyn
list.flatten(int) dyn
list.distinct() list
list.reverse() list
list.sort() list
lists.range(int) list(int)
sets.contains(list,list) bool
sets.equivalent(list,list) bool
sets.intersects(list,list) bool
url(string) url
isURL(string) bool
url.getScheme() string
url.getHost() string
url.getHostname() string
url.getPort() string
url.getEscapedPath() string
url.getQuery() map(string,list(string))
quantity(string) quantity
isQuantity(string) bool
quantity.isInteger() bool
quantity.asInteger() int
quantity.asApproximateFloat() double
sign(quantity) int
quantity.add(quantity) quantity
quantity.add(int) quantity
quantity.sub(quantity) quantity
quantity.sub(int) quantity
quantity.isGreaterThan(quantity) bool
quantity.isLessThan(quantity) bool
quantity.compareTo(quantity) int
semver(string) semver
semver(string,bool) semver
isSemver(string) bool
isSemver(string,bool) bool
semver.major() int
semver.minor() int
semver.patch() int
semver.isGreaterThan(semver) bool
semver.isLessThan(semver) bool
semver.compareTo(semver) int
ip(string) ip
isIP(string) bool
ip.isCanonical(string) bool
ip.family() int
ip.isUnspecified() bool
ip.isLoopback() bool
ip.isLinkLocalMulticast() bool
ip.isLinkLocalUnicast() bool
ip.isGlobalUnicast() bool
cidr(string) cidr
isCIDR(string) bool
cidr.containsIP(ip) bool
cidr.containsIP(string) bool
cidr.containsCIDR(cidr) bool
cidr.containsCIDR(string) bool
cidr.ip() ip
cidr.masked() cidr
cidr.prefixLength() int
format.dns1123Label() format
format.dns1123Subdomain() format
format.dns1035Label() format
format.dns1123LabelPrefix() format
format.dns1123SubdomainPrefix() format
format.dns1035LabelPrefix() format
format.qualifiedName() format
format.labelValue() format
format.uri() format
format.uuid() format
format.byte() format
format.date() format
format.datetime() format
format.named(string) optional(format)
format.validate(string) optional(list(string))
size(string) int
size(bytes) int
size(list) int
size(map) int
string.size() int
bytes.size() int
list.size() int
map.size() int
int(int) int
int(uint) int
int(double) int
int(string) int
int(timestamp) int
uint(int) uint
uint(uint) uint
uint(double) uint
uint(string) uint
double(int) double
double(uint) double
double(double) double
double(string) double
string(string) string
string(bool) string
string(int) string
string(uint) string
string(double) string
string(bytes) string
string(timestamp) string
string(duration) string
string(ip) string
string(cidr) string
bytes(bytes) bytes
bytes(string) bytes
bool(bool) bool
bool(string) bool
dyn(x) dyn
type(x) type
timestamp(string) timestamp
timestamp(timestamp) timestamp
duration(string) duration
duration(duration) duration
timestamp.getFullYear() int
timestamp.getMonth() int
timestamp.getDayOfYear() int
timestamp.getDayOfMonth() int
timestamp.getDate() int
timestamp.getDayOfWeek() int
timestamp.getHours() int
timestamp.getMinutes() int
timestamp.getSeconds() int
timestamp.getMilliseconds() int
duration.getHours() int
duration.getMinutes() int
duration.getSeconds() int
duration.getMilliseconds() int
optional.of(x) optional
optional.ofNonZeroValue(x) optional
optional.none() optional(none)
optional.hasValue() bool
optional.value() x
optional.or(optional) optional
optional.orValue(x) x
x.includes(x) bool
";

/// Names before the dot that are no types but part of a function's name. `ip` and `format` are both.
const NAMESPACES: [&str; 14] = [
    "strings.quote",
    "lists.range",
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    "ip.isCanonical",
    "format.named",
    "format.dns",
    "format.qualifiedName",
    "format.labelValue",
    "format.u",
    "format.byte",
    "format.date",
    "optional.of",
];

static TABLE: LazyLock<HashMap<(String, bool), Vec<Signature>>> = LazyLock::new(|| {
    let mut table: HashMap<(String, bool), Vec<Signature>> = HashMap::new();
    for line in FUNCTIONS.lines().filter(|line| !line.is_empty()) {
        let (name, signature) = read(line);
        table.entry((name, signature.is_method)).or_default().push(signature);
    }
    table
});

/// One way to call a function.
#[derive(Debug)]
struct Signature {
    is_method: bool,
    /// The receiver first, if there is one.
    parameters: Vec<Type>,
    result: Option<Type>,
}

/// Whether there is a function of this name, as a method or not.
pub(crate) fn is_known(name: &str, is_method: bool) -> bool {
    TABLE.contains_key(&(name.to_owned(), is_method))
}

/// The result of a call with arguments of these types, the receiver first, or none if the function does not take them.
pub(crate) fn result(name: &str, is_method: bool, arguments: &[Type]) -> Option<Type> {
    let signatures = TABLE.get(&(name.to_owned(), is_method))?;
    let fits = |signature: &&Signature| {
        signature.parameters.len() == arguments.len()
            && signature.parameters.iter().zip(arguments).all(|(wanted, told)| wanted.takes(told))
    };
    let mut results = signatures.iter().filter(fits).map(|signature| signature.give(arguments));
    let first = results.next()?;
    Some(if results.all(|other| other == first) { first } else { Type::Dyn })
}

impl Signature {
    fn give(&self, arguments: &[Type]) -> Type {
        match (&self.result, arguments.first()) {
            (Some(Type::List(element)), Some(list @ Type::List(_))) if **element == Type::Dyn => list.clone(),
            (Some(Type::Optional(inner)), Some(first)) if **inner == Type::Dyn => match first {
                Type::Optional(_) if self.is_method => first.clone(),
                other => Type::optional(other.clone()),
            },
            (Some(result), _) => result.clone(),
            (None, Some(Type::List(element) | Type::Optional(element))) => (**element).clone(),
            (None, _) => Type::Dyn,
        }
    }
}

/// The name and the rest of a line of the table, which a test reads as a whole.
fn read(line: &str) -> (String, Signature) {
    let (call, result) = line.rsplit_once(' ').unwrap_or((line, "x"));
    let open = call.rfind('(').unwrap_or(call.len());
    // The last parenthesis that opens is that of the arguments: no argument has any.
    let (callee, arguments) = call.split_at(open);
    let arguments = arguments.trim_matches(['(', ')']);
    let arguments = arguments.split(',').filter(|name| !name.is_empty()).map(type_named);
    let is_namespaced =
        NAMESPACES.iter().any(|prefix| callee.starts_with(prefix)) || callee == "optional.none";
    let (name, receiver) = match callee.rsplit_once('.') {
        Some((receiver, name)) if !is_namespaced => (name, Some(type_named(receiver))),
        _ => (callee, None),
    };
    let signature = Signature {
        is_method: receiver.is_some(),
        parameters: receiver.into_iter().chain(arguments).collect(),
        result: (result != "x").then(|| type_named(result)),
    };
    (name.to_owned(), signature)
}

fn type_named(name: &str) -> Type {
    match name {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "type" => Type::Kind,
        "list" => Type::list(Type::Dyn),
        "list(int)" => Type::list(Type::Int),
        "list(string)" => Type::list(Type::String),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "map(string,list(string))" => Type::map(Type::String, Type::list(Type::String)),
        "optional" => Type::optional(Type::Dyn),
        "optional(none)" => Type::optional(Type::Free),
        "optional(list(string))" => Type::optional(Type::list(Type::String)),
        "optional(format)" => Type::optional(Type::Object("kubernetes.Format")),
        "quantity" => crate::types::QUANTITY,
        "semver" => Type::Object("kubernetes.Semver"),
        "url" => Type::Object("kubernetes.URL"),
        "format" => Type::Object("kubernetes.Format"),
        "ip" => Type::Object("net.IP"),
        "cidr" => Type::Object("net.CIDR"),
        _ => Type::Dyn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read_and_names_only_known_types() {
        let mut methods = 0;
        for line in FUNCTIONS.lines().filter(|line| !line.is_empty()) {
            let (name, signature) = read(line);
            methods += usize::from(signature.is_method);
            assert!(is_known(&name, signature.is_method), "{line}");
            let open = signature.parameters.iter().filter(|parameter| **parameter == Type::Dyn).count();
            let told = line.matches(['(', ',', '.']).count();
            assert!(open == 0 || line.contains('x') || told == 0, "{line}: {signature:?}");
        }
        assert!(methods > 60, "{methods}");
    }

    #[test]
    fn names_with_a_namespace_are_functions_and_not_methods() {
        for name in ["sets.contains", "ip.isCanonical", "optional.none", "format.uuid", "format.named"] {
            assert!(is_known(name, false), "{name}");
        }
        for name in ["isLoopback", "hasValue", "orValue", "validate", "contains"] {
            assert!(is_known(name, true), "{name}");
        }
    }

    #[test]
    fn the_result_is_that_of_the_fitting_signature() {
        let list = |element| Type::list(element);
        for (name, is_method, arguments, expected) in [
            ("size", true, vec![Type::String], Some(Type::Int)),
            ("size", true, vec![Type::Int], None),
            ("size", false, vec![Type::Dyn], Some(Type::Int)),
            ("indexOf", true, vec![list(Type::Int), Type::Int], Some(Type::Int)),
            ("max", true, vec![list(Type::Int)], Some(Type::Int)),
            ("distinct", true, vec![list(Type::Int)], Some(list(Type::Int))),
            ("compareTo", true, vec![Type::Dyn, crate::types::QUANTITY], Some(Type::Int)),
            ("compareTo", true, vec![crate::types::QUANTITY, Type::Int], None),
            ("isGreaterThan", false, vec![Type::Dyn, Type::Dyn], None),
            ("orValue", true, vec![Type::optional(Type::Int), Type::Int], Some(Type::Int)),
        ] {
            assert_eq!(result(name, is_method, &arguments), expected, "{name} {arguments:?}");
        }
    }
}
