/*
   An example of your own YARA rules. Name the folder in guard.yml:

     yara:
       rules: yara

   Each file has its own namespace, which is its name without the ending. In `meta`:
   - description  is told to people with the match
   - verdict      malware, phishing, fraud or spam: the rule convicts; without it, a match makes the message suspicious
   - severity     info, low or medium: the rule does not convict, whatever its verdict
   Weights are policy: see policy/rules/yara.yml. `mailwarden config check` reports every mistake in these files.
*/
rule example_marker
{
    meta:
        description = "A line that nobody writes by chance, to see that your rules are in use"
        verdict = "malware"
        severity = "high"
    strings:
        $marker = "mailwarden yara example 7f3a9c"
    condition:
        $marker
}

rule example_hint
{
    meta:
        description = "Another line, for a rule that only hints"
    strings:
        $marker = "mailwarden yara hint 7f3a9c"
    condition:
        $marker
}
