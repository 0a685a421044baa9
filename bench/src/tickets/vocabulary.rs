//! The words of subjects: those of a service desk, their forms, and thousands of names that come up now and then.

use crate::chance::Chance;

/// The first are the most frequent.
const STEMS: &str = "not printer email password access laptop vpn server network outlook error install account reset \
    backup slow request user office update disk monitor internet license login teams phone screen drive shared folder \
    meeting room wifi computer replace keyboard mouse docking station crash software firewall port switch router cable \
    remote desktop mailbox calendar invite signature spam phishing quarantine certificate expired domain dns record website \
    hosting database query report export import invoice scanner toner paper jam tray driver queue spooler fax headset camera \
    microphone speaker audio video conference call voicemail extension transfer forward mobile tablet battery charger adapter \
    screen flicker blue restart boot bios firmware patch windows linux macos android iphone sync onedrive sharepoint permission \
    denied group policy profile roaming temp file corrupt restore snapshot virtual machine host cluster storage array volume \
    quota full space cleanup archive migrate tenant cloud azure subscription billing renew contract quote order purchase \
    delivery hardware asset inventory label dispose wipe encrypt bitlocker key token authenticator factor lockout unlock \
    disable enable create remove rename employee onboard offboard leaver starter department manager approval form workflow \
    ticket escalate vendor support warranty repair return loan spare rack power outage ups alarm temperature cooling fan noise \
    memory processor upgrade performance latency packet loss bandwidth connection drop timeout unreachable offline certificate \
    proxy browser chrome edge firefox cookie cache plugin macro excel word powerpoint pdf signing template font display \
    resolution projector kiosk terminal badge reader door";
const ENDINGS: [&str; 4] = ["", "s", "ing", "ed"];
const BEGINNINGS: [&str; 12] = ["ka", "mo", "ter", "lin", "vo", "san", "dre", "pal", "qui", "bor", "fen", "hal"];
const MIDDLES: [&str; 12] = ["ri", "na", "lo", "ve", "sta", "mi", "du", "go", "ber", "ti", "ra", "so"];
const ENDS: [&str; 28] = [
    "n", "x", "sen", "dal", "tek", "vik", "ro", "ma", "lis", "dor", "ham", "ton", "berg", "soft", "net", "link",
    "ware", "nor", "lex", "mar", "pol", "rus", "sys", "tan", "ult", "var", "wick", "zen",
];

/// Every word once; by chance, but always by the same, in the order of how often they come.
pub fn words() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for ending in ENDINGS {
        all.extend(STEMS.split_whitespace().map(|stem| format!("{stem}{ending}")));
    }
    let mut names: Vec<String> = Vec::new();
    for start in BEGINNINGS {
        for middle in MIDDLES {
            names.extend(ENDS.map(|end| format!("{start}{middle}{end}")));
        }
    }
    Chance::new(7).shuffle(&mut names);
    all.extend(names);
    let mut seen = std::collections::HashSet::new();
    all.retain(|word| seen.insert(word.clone()));
    all
}
