//! Which errors say that another server should be talked to. Pure.

/// Whether a server that answers so is no place to decide anything: a replica, a node of a cluster, a Sentinel, a
/// master that its replicas have left, or one that takes this connection for somebody else's. Where such a connection
/// leads elsewhere by now, be it through a name, a virtual address or a proxy, a new one finds the right server.
///
/// LOADING, BUSY, OOM and MISCONF are not among them: the right server says so too, and a new connection does not help.
pub fn is_wrong_server(code: &str, detail: Option<&str>) -> bool {
    let detail = detail.unwrap_or_default();
    match code {
        "READONLY" | "MASTERDOWN" | "NOREPLICAS" | "NOAUTH" => true,
        "MOVED" | "ASK" | "CLUSTERDOWN" | "CROSSSLOT" | "TRYAGAIN" => true,
        "ERR" => {
            // Redis 6.2 puts what stopped a script behind words of its own.
            let stopped_by = |code: &str| detail.contains(&format!(": -{code} "));
            detail.starts_with("unknown command")
                || detail.contains("non local key in a cluster node")
                || ["READONLY", "MASTERDOWN", "NOREPLICAS"].into_iter().any(stopped_by)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_wrong_server_from_one_that_is_busy() {
        let script = "Error running script (call to f_0): @user_script:8: @user_script: 8: ";
        for (code, detail, wrong) in [
            ("READONLY", "You can't write against a read only replica.", true),
            ("MASTERDOWN", "Link with MASTER is down and replica-serve-stale-data is set to 'no'.", true),
            ("NOREPLICAS", "Not enough good replicas to write.", true),
            ("NOAUTH", "Authentication required.", true),
            ("MOVED", "3999 127.0.0.1:6381", true),
            ("ASK", "3999 127.0.0.1:6381", true),
            ("CLUSTERDOWN", "Hash slot not served", true),
            ("ERR", "unknown command 'EVALSHA', with args beginning with: ", true),
            ("ERR", "Script attempted to access a non local key in a cluster node", true),
            ("ERR", &format!("{script}-READONLY You can't write against a read only replica."), true),
            ("ERR", &format!("{script}-OOM command not allowed when used memory > 'maxmemory'."), false),
            ("ERR", "value is not an integer or out of range", false),
            ("LOADING", "Redis is loading the dataset in memory", false),
            ("BUSY", "Redis is busy running a script.", false),
            ("OOM", "command not allowed when used memory > 'maxmemory'.", false),
            ("MISCONF", "Errors writing to the AOF file", false),
            ("NOPERM", "User svc has no permissions to run the 'evalsha' command", false),
            ("NOSCRIPT", "No matching script.", false),
            ("WRONGTYPE", "Operation against a key holding the wrong kind of value", false),
        ] {
            assert_eq!(is_wrong_server(code, Some(detail)), wrong, "{code} {detail}");
        }
        assert!(is_wrong_server("READONLY", None) && !is_wrong_server("ERR", None));
    }
}
