"""Revisions of the configuration: what each change altered, so that an earlier state can be read and restored.

**What a revision is.** The changes of one commit: of proxies, users, API keys, webhooks, overrides of settings, plans,
accounts, lists, pools and policies (all but `UNREVISED`); an import or a batch of 10,000 accounts is one. They have one
numbering, from 1, without gaps. Credentials of accounts and sign-ins are not configuration and have no revisions; nor
has a new hash of the same password.

**Where they are kept.** In tables of the file that has the documents, written in the transaction of the changes
themselves (`recorder`): so none is missing, and none is there that was not made. Unlike the audit trail these tables
are pruned, by age, number and size.

**How a state is reconstructed.** Each change has the whole document before and after it, so nothing is derived from a
chain (`document_changes`). The state after revision N is the present one with, for each document that was changed
later, its body before the first of these changes (`Reader.between`). So 10,000 revisions hold 10,000 changes, not
10,000 copies.

**Secrets** that the store has sealed are sealed here, too; hashes of passwords and keys are sealed in addition, since
they outlive the documents that had them. Without the key of the installation they are `LOST`. Every view masks secrets,
as the audit trail does.
"""
